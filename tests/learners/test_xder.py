"""The parts of X-DER against literal transcriptions, and what it leaves in the memory."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from learners.test_methods import config_of, problem
from training.tiny_problem import tiny_config, tiny_dataset

from wane.learners.contrast import positives_of, supervised_contrast
from wane.learners.xder import implant
from wane.streams import eval_batch, strong_views
from wane.training.checkpoint import load_checkpoint
from wane.training.events import Listener
from wane.training.run import run


def logits_of(seed, rows=40, classes=8):
    return 3 * torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.integers(0, 10_000), st.floats(0.1, 1.0), st.integers(0, 7))
def test_implanted_logits_row_by_row(seed, gamma, first):
    """The paper's rule where the label's logit is positive; and never a logit that beats the label."""
    kept, now = logits_of(seed), logits_of(seed + 1)
    labels = torch.arange(40) % max(first, 1)
    found = implant(kept, now, labels, torch.arange(first, 8), gamma)
    for row in range(40):
        label = float(kept[row, labels[row]])
        largest = max(now[row, first:].tolist())
        assert torch.equal(found[row, :first], kept[row, :first])
        if label > 0:
            share = min(1.0, gamma * label / largest) if largest > label else 1.0
            torch.testing.assert_close(found[row, first:], now[row, first:] * share)
        elif largest > label:
            moved = found[row, first:] - now[row, first:]
            torch.testing.assert_close(moved, moved[:1].expand_as(moved))
        else:
            assert torch.equal(found[row, first:], now[row, first:])
        if first > 0:
            assert float(found[row, first:].max()) <= label + 1e-9


def test_the_contrastive_loss_pair_by_pair():
    generator = torch.Generator().manual_seed(1)
    features = F.normalize(torch.randn(12, 5, generator=generator, dtype=torch.float64), dim=1)
    labels = torch.tensor([0, 1, 0, 2, 1, 1, 0, 2, 2, 1, 0, 3])  # the last is alone, and has no part in it
    total = 0.0
    for i in range(12):
        partners = [j for j in range(12) if j != i and labels[j] == labels[i]]
        below = sum(float((features[i] @ features[j] / 0.7).exp()) for j in range(12) if j != i)
        logs = [float(features[i] @ features[j] / 0.7) - float(torch.tensor(below).log()) for j in partners]
        total -= sum(logs) / len(logs) if logs else 0.0
    ours = supervised_contrast(features, positives_of(labels).double(), 0.7)
    assert float(ours) == pytest.approx(total / 12, rel=1e-6)


def test_views_are_parts_of_their_image_in_other_colours():
    """From a picture whose red is the column and whose green is the row, a view tells which part it shows."""
    ramp = torch.arange(32).mul(8)
    picture = torch.stack([ramp.expand(32, 32), ramp[:, None].expand(32, 32), torch.zeros(32, 32)]).to(torch.uint8)
    floats = strong_views(picture[None].float(), 200, torch.Generator().manual_seed(3))[0]  # no change of colour
    width = (floats[:, 0, :, -1] - floats[:, 0, :, 0]).mean(1) / 248
    height = (floats[:, 1, -1] - floats[:, 1, 0]).mean(1) / 248
    assert 0.4 < (width < 0).float().mean() < 0.6  # mirrored
    assert (height > 0).all()
    area = width.abs() * height
    assert 0.15 < float(area.min()) < 0.3
    assert float(area.max()) > 0.9
    assert 0.7 < float((width.abs() / height).min()) < 0.9
    assert floats.min() >= 0
    assert floats.max() <= 248
    coloured = strong_views(picture[None], 200, torch.Generator().manual_seed(3))[0]
    grey = ((coloured[:, 0] - coloured[:, 2]).abs().amax((1, 2)) < 1e-5).float().mean()
    assert 0.12 < grey < 0.28
    same = ((coloured * 255 - floats).abs().amax((1, 2, 3)) < 1e-2).float().mean()
    assert 0.1 < same < 0.22  # neither changed (1 of 5) nor grey (4 of 5)
    assert coloured.min() >= 0
    assert coloured.max() <= 1


def test_colours_change_as_in_a_literal_computation():
    """Brightness, contrast and saturation of one image, by their definitions; the hue keeps greys and brightness."""
    from wane.streams.views import LUMA, _colours

    image = 0.3 + 0.2 * torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0))

    def grey(x):
        return (x * torch.tensor(LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True)

    def given(*values):
        return [torch.tensor([v]) for v in values]

    # chances to values: 1 + 0.4 (2 p - 1)
    found = _colours(image, *given(0.0, 0.75, 0.25, 0.9, 0.5, 1.0))
    bright = image * 1.2
    contrasted = 0.8 * bright + 0.2 * grey(bright).mean()
    torch.testing.assert_close(found, 1.32 * contrasted - 0.32 * grey(contrasted), atol=1e-6, rtol=1e-5)
    turned = _colours(image, *given(0.0, 0.5, 0.5, 0.5, 0.9, 1.0))
    torch.testing.assert_close(grey(turned), grey(image), atol=1e-5, rtol=1e-5)
    assert (turned - image).abs().max() > 0.02
    torch.testing.assert_close(_colours(image, *given(0.9, 0, 0, 0, 0, 1.0)), image, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(_colours(image, *given(0.9, 0, 0, 0, 0, 0.0))[:, 1:2], grey(image), atol=1e-6, rtol=1e-5)


class Watch(Listener):
    """The memory and a copy of the learner after the last epoch of every task."""

    def __init__(self):
        self.tasks = []

    def epoch_done(self, session, task, epoch):
        if epoch + 1 == session.config.learner.epochs:
            memory = {name: value.clone() for name, value in session.memory.state_dict().items()}
            self.tasks.append((memory, copy.deepcopy(session.learner).eval()))


def test_the_memory_is_filled_when_a_task_ends_and_learns_of_later_classes(tmp_path):
    watch, data = Watch(), problem()
    run(config_of("xder", "cnn"), tmp_path / "run", dataset=data, listeners=[watch])
    for task, (memory, learner) in enumerate(watch.tasks):
        labels, logits = memory["labels"], memory["extras.logits"]
        assert labels.bincount(minlength=6).tolist() == [12 // (2 * task + 2)] * (2 * task + 2) + [0] * (4 - 2 * task)
        assert (memory["extras.drawn"] == 0).all()
        images = eval_batch(memory["images"], torch.arange(len(labels)), data.mean, data.std)
        with torch.no_grad():
            now = learner.model(images)
        later, past = torch.arange(2 * task, 6), torch.arange(2 * task)
        new = labels // 2 == task
        fresh = implant(now, now, labels, past, 0.85)
        torch.testing.assert_close(logits[new], fresh[new], atol=1e-4, rtol=1e-4)
        if task:
            wanted = implant(logits, now, labels, later, 0.85)
            torch.testing.assert_close(logits[~new], wanted[~new], atol=1e-4, rtol=1e-4)
    steps = [memory["steps"].unique().tolist() for memory, _ in watch.tasks]
    assert steps == [[4], [4, 8], [4, 8, 12]]


def test_stored_logits_are_rewritten_within_a_task(tmp_path):
    """Those of later classes of rows that were drawn; never those of the classes that were known."""
    after = []

    class Each(Listener):
        def step_done(self, session, rows):
            after.append({name: column.clone() for name, column in session.memory.extras.items()})

    config = config_of("xder", learner={"replay_size": 3, "batch_size": 10})
    watch = Watch()
    run(config, tmp_path / "run", dataset=problem(), listeners=[Each(), watch])
    start, labels = watch.tasks[0][0]["extras.logits"], watch.tasks[0][0]["labels"]
    within = after[4]  # the first step of the second task
    drawn = within["drawn"] > 0
    assert 3 <= int(drawn.sum()) <= 6  # two draws of three
    assert torch.equal(within["logits"][:, :2], start[:, :2])
    changed = (within["logits"] != start).any(1)
    assert torch.equal(changed, drawn)  # drawn for the first time: always
    largest = within["logits"][drawn][:, 2:].amax(1)
    assert (largest < start[drawn].gather(1, labels[drawn][:, None])[:, 0] + 1e-6).all()


def test_views_cost_nothing_in_the_last_task_and_can_be_left_out(tmp_path):
    seen = []

    class Each(Listener):
        def step_done(self, session, rows):
            seen.append((session.state.position.task, session.learner.views()))

    run(config_of("xder"), tmp_path / "with", dataset=problem(), listeners=[Each()])
    assert set(seen) == {(0, 2), (1, 2), (2, 0)}
    seen.clear()
    run(config_of("xder", learner={"options": {"views": 0}}), tmp_path / "without", dataset=problem(),
        listeners=[Each()])  # fmt: skip
    assert set(seen) == {(0, 0), (1, 0), (2, 0)}


def test_tasks_of_different_sizes_and_a_table(tmp_path):
    config = tiny_config(data={"tasks": [[0, 1, 2], [3], [4, 5]]}, learner={"name": "xder", "epochs": 1})
    run(config, tmp_path / "run", dataset=tiny_dataset(classes=6, train=10, test=5))
    assert load_checkpoint(tmp_path / "run")["memory"]["extras.logits"].isfinite().all()


def test_batch_norm_follows_the_first_draw(tmp_path):
    """With and without alignment the running statistics differ; in the first task they do not."""
    found = []
    for aligned in (True, False):
        watch = Watch()
        options = {"align_bn": aligned, "views": 0}
        run(config_of("xder", "cnn", learner={"options": options}), tmp_path / str(aligned), dataset=problem(),
            listeners=[watch])  # fmt: skip
        found.append([learner.state_dict() for _, learner in watch.tasks])
    name = next(key for key in found[0][0] if key.endswith("running_mean"))
    assert torch.equal(found[0][0][name], found[1][0][name])
    assert not torch.equal(found[0][1][name], found[1][1][name])
    tracked = name.replace("running_mean", "num_batches_tracked")
    assert [int(state[tracked]) for state in found[0]] == [4, 8, 12]  # once a step
    assert [int(state[tracked]) for state in found[1]] == [4, 16, 28]  # three passes a step
