"""A ninth signal is one row, added at run time: everything that handles signals takes it with no other line changed."""

import copy
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree

import wane
from wane.measures.summaries import summarise

MINE = wane.Signal("mine", "Among the first two", "t", "rank", r"[\mathrm{rank}_y \le 2]", True, lambda s: s.rank <= 2)


@pytest.fixture
def ninth():
    wane.SIGNALS["mine"] = MINE
    yield MINE
    del wane.SIGNALS["mine"]


def case(n=60, c=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, c, generator=g), torch.randint(c, (n,), generator=g)


def test_the_row_has_defaults(ninth):
    assert (ninth.short, ninth.bounded, ninth.unit, ninth.sign) == ("Among the first two", True, "", 1)
    assert len(ninth.colours) == 2
    assert [name for name, row in wane.SIGNALS.items() if not row.bounded] == ["loss"]
    assert wane.SIGNALS["log_tlr"].short == "Log-TLR"
    assert wane.SIGNALS["loss"].bounds == (0.0, math.inf)


@pytest.mark.parametrize("values", [{"name": "a b"}, {"name": "rank"}, {"bounds": (-1.0, 1.0)}])
def test_rows_that_are_refused(values):
    fields = {**{name: getattr(MINE, name) for name in MINE.__dataclass_fields__}, **values}
    with pytest.raises(ValueError, match=r"cannot be named|has bounds \(-1.0, 1.0\)"):
        wane.Signal(**fields)


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("compiled", [False, True])
def test_every_way_to_score_gives_it(contiguous, compiled):
    z, y = case()
    z = z if contiguous else torch.cat([z, z], 1)[:, : z.shape[1]]
    wane.signals(z, y, compiled=compiled)  # a kernel without it is there already, and must not be used for it
    wane.SIGNALS["mine"] = MINE
    try:
        scored = wane.signals(z, y, compiled=compiled)
    finally:
        del wane.SIGNALS["mine"]
    assert scored.names == (*wane.SIGNALS, "mine", "rank")
    assert torch.equal(scored.mine, (scored.rank <= 2).float())
    assert wane.signals(z, y, compiled=compiled).names == (*wane.SIGNALS, "rank")


def test_other_sources_padding_and_broken_rows(ninth):
    z, y = case()
    expected = (wane.signals(z, y).rank <= 2).float()
    assert torch.equal(wane.signals(probabilities=z.softmax(1), labels=y).mine, expected)
    assert torch.equal(wane.linear_signals(z, torch.eye(6), y).mine, expected)
    assert wane.signals_within(z, y, [0, 0, 0, 1, 1, 1]).mine.shape == y.shape
    y[3], z[5, 0] = -100, torch.nan
    s = wane.signals(z, y, ignore_index=-100, validate=False)
    assert s.mine[[3, 5]].isnan().all()
    assert not s.mine[[0, 1]].isnan().any()


def test_through_metrics_history_files_and_interventions(ninth, tmp_path):
    z, y = case()
    m = wane.ClassMetrics(6)
    groups = wane.GroupMetrics(2)
    history = wane.History(class_to_task=[0, 0, 0, 1, 1, 1])
    expected = (wane.signals(z, y).rank <= 2).double()
    for step in range(3):
        m.reset()
        m.update(z, y)
        groups.update(z, y, groups=y % 2)
        history.record(m, step=step, task=step // 2, split="test")
        history.record(m, step=step, task=step // 2, split="replay")
    means = [float(expected[y == c].mean()) for c in range(6)]
    assert m.compute()["mine"].tolist() == pytest.approx(means)
    assert groups.compute()["mine"][0].item() == pytest.approx(float(expected[y % 2 == 0].mean()))
    assert history.signals[-1] == "mine"
    path = tmp_path / "h.parquet"
    history.write(path)
    again = wane.History.read(path)
    assert again.frame.equals(history.frame)
    assert again.frame["mine"][:6].to_list() == pytest.approx(means)
    assert again.trajectory("mine").values[0].tolist() == pytest.approx(means)
    assert again.matrix("mine")[1, 1] == pytest.approx(float(expected[y >= 3].mean()))
    assert summarise(again)["mine"]["average"] is not None
    weights = wane.LossWeights("mine")(wane.signals(z, y))
    assert weights[expected == 0].min() > weights[expected == 1].max()
    assert wane.TrendSampler("mine").probabilities(again).tolist() == pytest.approx([1 / 6] * 6)


def test_files_with_more_and_with_fewer_signals(tmp_path):
    z, y = case()
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"

    def record(path):
        m, history = wane.ClassMetrics(6), wane.History(class_to_task=[0] * 6)
        m.update(z, y)
        history.record(m, step=0, task=0)
        history.write(path)
        return m

    record(old)
    wane.SIGNALS["mine"] = MINE
    try:
        nine = record(new)
        before = wane.History.read(old)
        assert np.isnan(before.trajectory("mine").values).all()  # an older file lacks it
        assert summarise(before)["mine"]["average"] is None
        before.record(nine, step=1, task=0)  # and goes on with it
        assert np.isnan(before.trajectory("mine").values).all(1).tolist() == [True, False]
        assert before.frame.columns[-1] == "mine"
        cm = before.trajectory("cm").values
        np.testing.assert_array_equal(cm[0], cm[1])
        both = wane.History.read(new)
        both.append(wane.History.read(old))
        assert np.isnan(both.trajectory("mine").values).all(1).tolist() == [False, True]
    finally:
        del wane.SIGNALS["mine"]
    newer = wane.History.read(new)  # a newer file has one that is unknown here
    assert newer.signals == (*wane.SIGNALS, "mine")
    assert newer.trajectory("mine").values.shape == (1, 6)
    newer.write(old)
    assert "mine" in wane.History.read(old).frame.columns
    with pytest.raises(ValueError, match="unknown signal 'min'"):
        newer.trajectory("min")


def test_the_container():
    z, y = case()
    s = wane.signals(z, y)
    assert s.names == (*wane.SIGNALS, "rank")
    assert s["cm"] is s.cm
    assert s[2] is s.cm
    assert len(s[:8]) == 8
    assert [name for name in s.names if not torch.equal(s[name], getattr(s, name))] == []
    assert s.map(lambda v: v[:7]).loss.shape == (7,)
    for again in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s), pytree.tree_map(lambda v: v + 0, s)):
        assert isinstance(again, wane.Signals)
        assert again.names == s.names
        assert all(torch.equal(a, b) for a, b in zip(again, s, strict=True))
    with pytest.raises(AttributeError, match="no signal 'losss' here; there are: accuracy, loss"):
        s.losss  # noqa: B018
    with pytest.raises(KeyError, match="no signal 'x' here"):
        s["x"]
    with pytest.raises(ValueError, match="1 values for 9 names"):
        wane.Signals(y)


def test_data_parallel_helpers_and_compiled_functions_keep_it_whole():
    from torch.nn.parallel.scatter_gather import _is_namedtuple

    z, y = case()
    s = wane.signals(z, y)
    assert _is_namedtuple(s)
    for again in (type(s)(*s), type(s)._make(iter(s))):  # how scatter and gather rebuild it
        assert again.names == s.names
    compiled = torch.compile(lambda a, b: wane.signals(a, b, validate=False), fullgraph=True, backend="eager")(z, y)
    assert isinstance(compiled, wane.Signals)
    assert torch.equal(compiled.cm, s.cm)


def test_names_and_interventions_need_no_torch():
    code = ("import sys, wane; wane.SIGNALS['cm'].short; wane.LossWeights('cm', rows='all'); wane.TrendSampler('loss');"
            "print([m for m in ('torch', 'numpy', 'polars') if m in sys.modules])")  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    code = "import sys, wane; wane.History([0, 1]); wane.forgetting([[1], [0, 1]]); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
