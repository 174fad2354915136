"""Real files, good and bad, in every format."""

import json
import os
import pickle
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from wane.predictions import files
from wane.predictions.predictions import PredictionsError, read_predictions
from wane.predictions.reading import read_samples

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0], [1.0, 0.25, -2.0], [0.5, 0.0, 4.0]], dtype=np.float32)
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
LABELS = np.array([0, 1, 2, 2])
NAMES = ["cat", "dog", "emu"]
IDS = ["a", "b", "c", "d"]


def npz(folder, **arrays):
    np.savez(folder / "p.npz", **arrays)
    return folder / "p.npz"


def csv(folder, text):
    (folder / "p.csv").write_text(text)
    return folder / "p.csv"


def parquet(folder, columns):
    pl.DataFrame(columns).write_parquet(folder / "p.parquet")
    return folder / "p.parquet"


def pt(folder, value, name="p.pt"):
    torch.save(value, folder / name)
    return folder / name


def wide(prefix, values, classes, **more):
    return {**{f"{prefix}_{c}": values[:, i] for i, c in enumerate(classes)}, **more}


def check(p, path, names=None, ids=None, kind="logits", dtype=torch.float32):
    expected = LOGITS if kind == "logits" else PROBABILITIES
    scores, other = (p.logits, p.probabilities) if kind == "logits" else (p.probabilities, p.logits)
    assert other is None
    assert scores.dtype == dtype
    np.testing.assert_allclose(scores.double().numpy(), expected, rtol=1e-2 if scores.itemsize == 2 else 1e-7)
    assert p.labels.dtype == torch.int64
    assert p.labels.tolist() == LABELS.tolist()
    assert (p.class_names, p.ids) == (names, ids)
    assert (len(p), p.num_classes, p.path) == (4, 3, path)


def test_npz(tmp_path):
    path = npz(tmp_path, logits=LOGITS, labels=LABELS)
    check(read_predictions(path), path)
    check(read_predictions(str(path)), path)
    path = npz(tmp_path, probs=PROBABILITIES, y=LABELS.astype(np.uint8), class_names=NAMES, ids=IDS, extra=[1])
    check(read_predictions(path), path, tuple(NAMES), tuple(IDS), kind="probabilities")


@pytest.mark.parametrize("alias", ["labels", "label", "targets", "target", "y"])
def test_label_aliases(tmp_path, alias):
    path = npz(tmp_path, logits=LOGITS, **{alias: LABELS})
    check(read_predictions(path), path)


def test_labels_may_be_class_names(tmp_path):
    path = npz(tmp_path, logits=LOGITS, labels=np.array(NAMES)[LABELS], class_names=np.array(NAMES, dtype="S3"))
    check(read_predictions(path), path, tuple(NAMES))


def test_suffix_in_capitals(tmp_path):
    path = npz(tmp_path, logits=LOGITS, labels=LABELS).rename(tmp_path / "P.NPZ")
    check(read_predictions(path), path)


@pytest.mark.parametrize(
    ("stored", "kept"),
    [
        (np.float16, torch.float16),
        (np.float64, torch.float64),
        (">f4", torch.float32),
        (np.longdouble, torch.float64),
    ],
)
def test_npz_precision(tmp_path, stored, kept):
    path = npz(tmp_path, logits=LOGITS.astype(stored), labels=LABELS)
    check(read_predictions(path), path, dtype=kept)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["p.pt", "p.pth"])
def test_torch(tmp_path, dtype, name):
    tensors = {"logits": torch.tensor(LOGITS, dtype=dtype).requires_grad_(), "targets": torch.tensor(LABELS)}
    path = pt(tmp_path, {**tensors, "class_names": NAMES, "ids": torch.arange(4)}, name)
    p = read_predictions(path)
    check(p, path, tuple(NAMES), (0, 1, 2, 3), dtype=dtype)
    assert not p.logits.requires_grad


def test_half_precision_probabilities_sum_to_one(tmp_path):
    p = torch.softmax(torch.randn(50, 1000, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = torch.zeros(50, dtype=torch.int64)
    for dtype in (torch.float16, torch.bfloat16):
        read = read_predictions(pt(tmp_path, {"probabilities": p.to(dtype), "labels": labels}))
        assert read.probabilities.dtype == dtype


def test_parquet_columns_by_name(tmp_path):
    columns = wide("logit", LOGITS, NAMES, label=np.array(NAMES)[LABELS], id=IDS, other=[1, 2, 3, 4])
    path = parquet(tmp_path, columns)
    check(read_predictions(path), path, tuple(NAMES), tuple(IDS))


def test_parquet_columns_by_number_in_any_order(tmp_path):
    many = np.arange(24.0).reshape(2, 12)
    columns = {f"logit_{i}": many[:, i] for i in reversed(range(12))}  # as text, 10 sorts before 2
    p = read_predictions(parquet(tmp_path, {**columns, "label": [11, 0]}))
    np.testing.assert_array_equal(p.logits.numpy(), many)
    assert p.class_names is None


@pytest.mark.parametrize("dtype", [pl.List(pl.Float32), pl.Array(pl.Float32, 3)])
@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_parquet_list_column(tmp_path, dtype, kind):
    values = LOGITS if kind == "logits" else PROBABILITIES
    column = pl.Series(values.tolist(), dtype=dtype)
    path = parquet(tmp_path, {kind: column, "label": pl.Series(LABELS, dtype=pl.UInt8)})
    check(read_predictions(path), path, kind=kind)


def test_parquet_keeps_half_precision(tmp_path):
    path = parquet(tmp_path, wide("logit", LOGITS.astype(np.float16), range(3), label=LABELS))
    check(read_predictions(path), path, dtype=torch.float16)


def test_csv(tmp_path):
    pl.DataFrame(wide("prob", PROBABILITIES, NAMES, label=np.array(NAMES)[LABELS], id=[7, 8, 9, 10])).write_csv(
        tmp_path / "p.csv"
    )
    p = read_predictions(tmp_path / "p.csv")
    check(p, tmp_path / "p.csv", tuple(NAMES), (7, 8, 9, 10), kind="probabilities", dtype=torch.float64)


def test_csv_of_whole_numbers_and_masked_classes(tmp_path):
    p = read_predictions(csv(tmp_path, "logit_0,logit_1,label\n1,-inf,0\n2,3,1\n"))
    assert p.logits.tolist() == [[1.0, -torch.inf], [2.0, 3.0]]


def test_names_with_wildcards_are_names(tmp_path):
    folder = tmp_path / "run[1]*"
    folder.mkdir()
    assert len(read_predictions(csv(folder, "logit_0,logit_1,label\n1,0,0\n"))) == 1
    assert len(read_predictions(parquet(folder, {"logit_0": [1.0], "logit_1": [0.0], "label": [0]}))) == 1


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_is_executed(tmp_path):
    target = tmp_path / "executed"
    bomb = {"logits": torch.tensor(LOGITS), "labels": torch.tensor(LABELS), "ids": Bomb(target)}
    files = [pt(tmp_path, bomb)]
    (tmp_path / "q.pt").write_bytes(pickle.dumps(bomb))
    (tmp_path / "q.npz").write_bytes(pickle.dumps(bomb))
    np.savez(tmp_path / "r.npz", logits=LOGITS, labels=LABELS, ids=np.array([Bomb(target)] * 4, dtype=object))
    files += [tmp_path / "q.pt", tmp_path / "q.npz", tmp_path / "r.npz"]
    for path in files:
        with pytest.raises(PredictionsError, match=re.escape(str(path))):
            read_predictions(path)
        assert not target.exists()
    pickle.loads((tmp_path / "q.pt").read_bytes())  # the bomb does work
    assert target.exists()


def bad(values, row, column, value):
    values = np.array(values)
    values[row, column] = value
    return values


BAD_FILES = {
    "missing": (lambda d: d / "no.npz", "is not a file: check the path"),
    "folder": (lambda d: (d / "x.csv").mkdir() or d / "x.csv", "is not a file"),
    "suffix": (
        lambda d: d / "p.xlsx",
        r"is an unknown kind of file '\.xlsx'\. Known: \.npz, \.npy, \.parquet, \.csv, \.jsonl, \.ndjson, ",
    ),
    "no suffix": (lambda d: d / "preds", "unknown kind of file ''"),
    "near suffix": (lambda d: d / "p.npx", r"'\.npx'; did you mean '\.npz'\?"),
    "example": (lambda d: "example:digit_before", "unknown example 'digit_before'; did you mean 'digits_before'"),
    "no labels": (lambda d: npz(d, logits=LOGITS, foo=LABELS), "has no labels .it has 'logits', 'foo'"),
    "no logits": (lambda d: npz(d, scores=LOGITS, labels=LABELS), "neither.*'scores', 'labels'"),
    "nothing": (lambda d: npz(d), "neither.*it has nothing"),
    "no logits in csv": (lambda d: csv(d, "a,label\n1,0\n"), "neither.*'a', 'label'"),
    "both": (
        lambda d: npz(d, logits=LOGITS, probs=PROBABILITIES, y=LABELS),
        "logits and probabilities: keep",
    ),
    "both in csv": (lambda d: csv(d, "logit_0,prob_0,label\n1,0,0\n"), "logits and probabilities: keep"),
    "two labels": (
        lambda d: npz(d, logits=LOGITS, y=LABELS, label=LABELS),
        "label and y, which mean the same",
    ),
    "two forms": (
        lambda d: parquet(d, {"logits": [[1.0]], "logit_0": [1.0]}),
        "'logits' and a column 'logit_0'",
    ),
    "fewer labels": (lambda d: npz(d, logits=LOGITS, labels=LABELS[:3]), r"shape \(3,\) for 4 rows"),
    "flat logits": (lambda d: npz(d, logits=LOGITS[0], labels=LABELS), r"shape \(3,\): save \(samples"),
    "token logits": (lambda d: npz(d, logits=LOGITS[None], labels=LABELS[None]), r"shape \(1, 4, 3\)"),
    "one class": (lambda d: npz(d, logits=LOGITS[:, :1], labels=LABELS * 0), r"\(4, 1\).*2 classes or more"),
    "no rows": (lambda d: npz(d, logits=LOGITS[:0], labels=LABELS[:0]), "has no rows"),
    "only a header": (lambda d: csv(d, "logit_0,logit_1,label\n"), "has no rows"),
    "no rows in lists": (
        lambda d: parquet(d, {"logits": pl.Series([], dtype=pl.List(pl.Float32))}),
        "no rows",
    ),
    "few names": (
        lambda d: npz(d, logits=LOGITS, y=LABELS, class_names=["a"]),
        "1 class names for 3 classes",
    ),
    "same names": (
        lambda d: npz(d, logits=LOGITS, y=["a", "b", "a", "b"], class_names=["a", "b", "a"]),
        "labels as text and the class name 'a' twice: save labels as numbers",
    ),
    "complex": (
        lambda d: pt(d, {"logits": torch.tensor(LOGITS) * 1j, "y": torch.tensor(LABELS)}),
        "outputs of type torch.complex64: save them as floating",
    ),
    "complex array": (lambda d: npz(d, logits=LOGITS * 1j, y=LABELS), "outputs of type complex64"),
    "label too large": (
        lambda d: npz(d, logits=LOGITS, labels=LABELS + 1),
        "label 3 in row 2.*3 classes 0 to 2",
    ),
    "label negative": (lambda d: npz(d, logits=LOGITS, labels=LABELS - 1), "label -1 in row 0"),
    "label fraction": (
        lambda d: npz(d, logits=LOGITS, labels=LABELS + 0.5),
        "type float64, such as 0.5: .*integ",
    ),
    "label bfloat16": (
        lambda d: pt(d, {"logits": torch.tensor(LOGITS), "y": torch.zeros(4, dtype=torch.bfloat16)}),
        "such as 0.0: save them as integers",
    ),
    "label bool": (lambda d: npz(d, logits=LOGITS, labels=LABELS > 0), "type bool"),
    "label unknown": (lambda d: csv(d, "logit_a,logit_b,label\n1,2,a\n1,2,c\n"), "'c' in row 1.*such as 'a'"),
    "label text": (lambda d: csv(d, "logit_0,logit_1,label\n1,2,a\n"), "'a' in row 0.*no class names"),
    "label empty": (
        lambda d: csv(d, "logit_0,logit_1,label\n1,2,0\n1,2,\n"),
        "no value in row 1 of column 'label'",
    ),
    "nan": (lambda d: npz(d, logits=bad(LOGITS, 2, 1, np.nan), y=LABELS), "the logit of class 1 in row 2 is nan"),
    "inf": (lambda d: npz(d, logits=bad(LOGITS, 3, 0, np.inf), y=LABELS), "the logit of class 0 in row 3 is inf"),
    "masked label": (
        lambda d: npz(d, logits=bad(LOGITS, 1, 1, -np.inf), y=LABELS),
        "the label's own logit is -inf at row 1",
    ),
    "empty cell": (
        lambda d: csv(d, "logit_0,logit_1,label\n1,2,0\n1,,0\n"),
        "the logit of class 1 in row 1 is nan",
    ),
    "text cell": (
        lambda d: csv(d, "logit_0,logit_1,label\n1,2,0\n1,x,0\n"),
        "'x' in row 1 of column 'logit_1'",
    ),
    "text logits": (lambda d: npz(d, logits=LOGITS.astype(str), labels=LABELS), "outputs of type <U"),
    "gap": (lambda d: csv(d, "logit_1,logit_2,label\n1,2,0\n"), "no 'logit_0': count from 0"),
    "sum": (lambda d: npz(d, probs=bad(PROBABILITIES, 1, 0, 1), y=LABELS), "of row 1 sum to 1.95.*, not 1"),
    "logits as probabilities": (lambda d: npz(d, probs=LOGITS, y=LABELS), "a probability of row 0 is -1"),
    "nan probability": (
        lambda d: npz(d, probs=bad(PROBABILITIES, 0, 0, np.nan), y=LABELS),
        "a probability of row 0 is nan",
    ),
    "ragged": (
        lambda d: parquet(d, {"logits": [[1.0, 2], [1.0]], "y": [0, 0]}),
        "2 logits in row 0 but 1 in row 1",
    ),
    "ids": (
        lambda d: npz(d, logits=LOGITS, y=LABELS, ids=list("abcb")),
        "id 'b' in rows 1 and 3: make the ids",
    ),
    "few ids": (
        lambda d: npz(d, logits=LOGITS, y=LABELS, ids=list("abc")),
        r"ids of shape \(3,\) for 4 rows",
    ),
    "a tensor": (lambda d: pt(d, torch.tensor(LOGITS)), "holds a Tensor: save a dict"),
    "an array": (lambda d: np.save((d / "p.npz").open("wb"), LOGITS) or d / "p.npz", "is a single array"),
    "empty csv": (lambda d: csv(d, ""), "cannot be read as .csv"),
    "crooked csv": (lambda d: csv(d, "a,b\n1,2\n1,2,3,4\n"), "cannot be read as .csv"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files(tmp_path, case):
    make, message = BAD_FILES[case]
    path = make(tmp_path)
    with pytest.raises(PredictionsError, match=message) as caught:
        read_predictions(path)
    assert one_sentence(str(caught.value)).startswith(str(path))


def one_sentence(text):
    assert "\n" not in text
    assert ": " in text  # what is wrong: what to do
    assert not text.endswith(".")
    return text


@pytest.mark.parametrize("suffix", ["npz", "parquet", "pt", "pth"])
@pytest.mark.parametrize("damage", ["truncated", "foreign", "empty"])
def test_broken_files(tmp_path, suffix, damage):
    if suffix == "npz":
        path = npz(tmp_path, logits=LOGITS, labels=LABELS)
    elif suffix == "parquet":
        path = parquet(tmp_path, wide("logit", LOGITS, range(3), label=LABELS))
    else:
        path = pt(tmp_path, {"logits": torch.tensor(LOGITS), "labels": torch.tensor(LABELS)}, f"p.{suffix}")
    content = {"truncated": path.read_bytes()[:-100], "foreign": b"not what it says " * 9, "empty": b""}[damage]
    path.write_bytes(content)
    with pytest.raises(PredictionsError) as caught:
        read_predictions(path)
    assert one_sentence(str(caught.value)).startswith(str(path))


def test_npy_with_labels_beside_it(tmp_path):
    np.save(tmp_path / "before_logits.npy", LOGITS)
    with pytest.raises(PredictionsError, match=r"no labels beside it: save them as labels.npy"):
        read_predictions(tmp_path / "before_logits.npy")
    np.save(tmp_path / "labels.npy", LABELS)
    np.save(tmp_path / "class_names.npy", np.array(NAMES))
    check(read_predictions(tmp_path / "before_logits.npy"), tmp_path / "before_logits.npy", tuple(NAMES))
    np.save(tmp_path / "before_labels.npy", LABELS[::-1])  # one's own come first
    assert read_predictions(tmp_path / "before_logits.npy").labels.tolist() == LABELS[::-1].tolist()
    np.save(tmp_path / "after.npy", PROBABILITIES)  # the rows say that they are probabilities
    np.save(tmp_path / "ids.npy", np.array(IDS))
    check(
        read_predictions(tmp_path / "after.npy"), tmp_path / "after.npy", tuple(NAMES), tuple(IDS), kind="probabilities"
    )


def test_npy_of_records(tmp_path):
    records = np.zeros(4, dtype=[("logits", "f4", 3), ("label", "i8"), ("id", "U1")])
    records["logits"], records["label"], records["id"] = LOGITS, LABELS, IDS
    np.save(tmp_path / "p.npy", records)
    check(read_predictions(tmp_path / "p.npy"), tmp_path / "p.npy", ids=tuple(IDS))


def test_npy_stays_on_the_disk(tmp_path):
    np.save(tmp_path / "logits.npy", LOGITS)
    np.save(tmp_path / "labels.npy", LABELS)
    p = read_predictions(tmp_path / "logits.npy")
    p.logits[0, 0] = 99  # a copy of one's own: the file does not change
    assert np.load(tmp_path / "logits.npy")[0, 0] == LOGITS[0, 0]


@pytest.mark.parametrize("suffix", ["jsonl", "ndjson"])
def test_json_lines(tmp_path, suffix):
    path = tmp_path / f"p.{suffix}"
    rows = [
        {"logits": z.tolist(), "label": int(y), "id": i, "light": "day"}
        for z, y, i in zip(LOGITS, LABELS, IDS, strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    p = read_predictions(path)
    check(p, path, ids=tuple(IDS), dtype=torch.float64)
    assert p.columns["light"].to_list() == ["day"] * 4


def test_csv_with_short_names(tmp_path):
    p = read_predictions(csv(tmp_path, "p1,p0,label,pages\n0.2,0.8,0,7\n0.6,0.4,1,8\n"))
    assert p.probabilities.tolist() == [[0.8, 0.2], [0.4, 0.6]]
    assert p.columns["pages"].to_list() == [7, 8]
    with pytest.raises(PredictionsError, match=r"columns '0' to '1', .*: call them logit_0 or prob_0 and so on"):
        read_predictions(csv(tmp_path, "0,1,label\n0.2,0.8,0\n"))


def test_a_label_that_is_the_name_of_a_class(tmp_path):
    p = read_predictions(csv(tmp_path, "logit_2,logit_1,logit_other,label\n1,2,3,2\n1,2,3,1\n1,2,3,other\n"))
    assert p.labels.tolist() == [0, 1, 2]
    p = read_predictions(csv(tmp_path, "logit_2,logit_1,logit_other,label\n1,2,3,2\n1,2,3,1\n"))  # parsed as numbers
    assert p.labels.tolist() == [0, 1]
    with pytest.raises(PredictionsError, match="label '0' in row 0: each must be one of 3 class names"):
        read_predictions(csv(tmp_path, "logit_2,logit_1,logit_other,label\n1,2,3,0\n"))


def test_other_columns_are_groups(tmp_path):
    path = npz(
        tmp_path,
        logits=LOGITS,
        y=LABELS,
        light=["day", "day", "night", "day"],
        doc=[1, 1, 2, 2],
        documents=list("aabb"),
    )
    p = read_predictions(path)
    assert {name: column.to_list() for name, column in p.columns.items()} == {
        "light": ["day", "day", "night", "day"], "doc": [1, 1, 2, 2], "document": ["a", "a", "b", "b"]
    }  # fmt: skip
    odd = npz(
        tmp_path, logits=LOGITS, y=LABELS, weights=np.ones((4, 2)), short=[1], odd=np.array([{}] * 4, dtype=object)
    )
    assert not read_predictions(odd).columns


def test_rows_of_a_later_chunk_are_counted_from_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr("wane.predictions.samples.CHUNK", 6)
    path = npz(tmp_path, logits=bad(LOGITS, 3, 0, np.inf), y=LABELS)
    with pytest.raises(PredictionsError, match="the logit of class 0 in row 3 is inf"):
        read_samples(path)


def test_npz_stays_on_the_disk_unless_compressed(tmp_path):
    plain, packed = tmp_path / "a.npz", tmp_path / "b.npz"
    fortran = np.asfortranarray(LOGITS)
    for extra in ({}, {"logits": fortran}):
        arrays = {"labels": LABELS, "light": ["day"] * 4, "logits": LOGITS} | extra
        np.savez(plain, **arrays)
        np.savez_compressed(packed, **arrays)
        for path in (plain, packed):
            check(read_predictions(path), path)
    assert isinstance(files.READERS[".npz"][0](plain)["logits"], np.memmap)
    assert not isinstance(files.READERS[".npz"][0](packed)["logits"], np.memmap)
    p = read_predictions(plain)
    p.logits[0, 0] = 99
    check(read_predictions(plain), plain)


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl", "x.json", "x.npy", "x.csv"])
def test_what_is_broken_is_one_sentence_for_samples_too(tmp_path, name):
    for content in (b"", b"not what it says " * 9, b"PAR1" + b"\0" * 99 + b"PAR1", b"[1, 2", b"3\n"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PredictionsError) as caught:
            read_samples(tmp_path / name)
        assert one_sentence(str(caught.value)).startswith(str(tmp_path / name))
