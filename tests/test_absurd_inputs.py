"""Sizes beyond reason and files made to hurt: one sentence, before memory is taken."""

import struct
import zlib

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

import wane
from wane.models import build_model
from wane.predictions.predictions import PredictionsError, read_predictions
from wane.runs.config import ConfigError, build_config, parse_setting, read_toml
from wane.runs.folder import find_runs
from wane.streams import from_folder
from wane.streams.dataset import DataError

ABSURD = [
    "memory.capacity=1e15", "data.padding=1000000", "devices=10000000000000", "learner.epochs=1000000000000",
    "model.width=100000000", "threads=1000000000", "learner.batch_size=1000000000000000", "data.resolution=1000000",
    "seed=100000000000000000000000000",
]  # fmt: skip


@pytest.mark.parametrize("setting", ABSURD)
def test_absurd_sizes_are_refused_when_a_run_is_planned(setting):
    with pytest.raises(ConfigError, match=f"{setting.partition('=')[0]} = .* is invalid"):
        build_config(parse_setting(setting))


def test_deep_toml_is_one_sentence(tmp_path):
    deep = "[" * 5000 + "]" * 5000
    (tmp_path / "deep.toml").write_text(f"a = {deep}")
    with pytest.raises(ConfigError, match=r"deep.toml is not TOML that can be read"):
        read_toml(tmp_path / "deep.toml")
    assert parse_setting(f"a={deep}") == {"a": deep}  # then a text, which its setting refuses


def test_columns_of_the_same_name_are_refused(tmp_path):
    (tmp_path / "twice.csv").write_text("logit_0,logit_0,label\n1,2,0\n2,1,0\n")
    with pytest.raises(PredictionsError, match="has 2 columns called 'logit_0': keep one"):
        read_predictions(tmp_path / "twice.csv")


@pytest.mark.parametrize("labels", ["2\n1", "2\nother"])
def test_columns_are_read_by_name(tmp_path, labels):
    first, second = labels.split()
    path = tmp_path / "named.csv"
    path.write_text(f"logit_2,logit_1,logit_other,label\n3,1,0,{first}\n0,1,3,{second}\n")
    found = read_predictions(path)
    assert found.class_names == ("2", "1", "other")
    assert [found.class_names[label] for label in found.labels] == [first, second]


@pytest.mark.parametrize(("model", "side"), [("cnn", 1), ("cnn", 3), ("cnn", 4), ("resnet18", 1), ("mlp", 1)])
def test_images_too_small_for_a_model(model, side):
    shape, options = (3, side, side), {"hidden": [4]} if model == "mlp" else {"width": 2}
    if model == "cnn" and side < 4:
        with pytest.raises(ValueError, match=f"at least 4 x 4 pixels, but these have {side} x {side}"):
            build_model(model, 5, shape, **options)
        return
    assert build_model(model, 5, shape, **options).eval()(torch.zeros(2, *shape)).shape == (2, 5)


def test_an_encrypted_file_is_one_sentence(tmp_path):
    path = tmp_path / "locked.npz"
    np.savez(path, logits=np.eye(3), labels=np.arange(3))
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag "encrypted" of each member
        at = -1
        while (at := content.find(mark, at + 1)) >= 0:
            content[at + offset] |= 1
    path.write_bytes(content)
    with pytest.raises(PredictionsError, match=r"locked.npz cannot be read .*encrypted"):
        read_predictions(path)


def test_what_polars_panics_at_is_one_sentence(tmp_path, monkeypatch):
    class PanicError(BaseException):
        """As Polars has one: no Exception."""

    def panics(*_, **__):
        raise PanicError("index out of bounds")

    path = tmp_path / "p.parquet"
    pl.DataFrame({"logit_0": [1.0], "logit_1": [2.0], "label": [0]}).write_parquet(path)
    for name in ("read_parquet", "scan_parquet"):
        monkeypatch.setattr(pl, name, panics)
    with pytest.raises(PredictionsError, match="index out of bounds"):
        read_predictions(path)
    with pytest.raises(ValueError, match="index out of bounds"):
        wane.History.read(path)
    folder = wane.save_run(some_history(), tmp_path / "run", method="mine", seed=0)
    (folder / "replay.parquet").write_bytes(path.read_bytes())
    (folder / "sums.sha256").unlink(missing_ok=True)
    with pytest.raises(ValueError, match=r"replay.parquet is damaged or of something else"):
        _ = find_runs(folder)[0].replay


def some_history():
    history = wane.History(class_to_task=[0, 1])
    history.record({"accuracy": [0.5, 0.5], "n": [1, 1]}, step=0, task=0)
    return history


def test_nothing_recorded_is_one_sentence():
    for call in (lambda h: h.trajectory("cm"), lambda h: h.matrix("cm"), lambda h: wane.at_risk(h)):
        with pytest.raises(ValueError, match="nothing was recorded"):
            call(wane.History(class_to_task=[0, 1]))


def test_a_huge_image_is_refused_by_its_header(tmp_path, monkeypatch):
    executed = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(2):
            Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / name / f"{i}.png")
    header = struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    (tmp_path / "a" / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IEND", b""))
    (tmp_path / "b" / "z.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\nshowpage\n")
    # what Pillow would call for PostScript, whatever the file is named
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: executed.append(1))
    with pytest.raises(DataError) as caught:
        from_folder(tmp_path)
    assert not executed
    assert "huge.png has 81,000,000 pixels, more than 67,108,864" in str(caught.value)
    assert "z.png is not a readable image" in str(caught.value)
