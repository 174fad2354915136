"""The memory as a whole: columns, state, herding, errors."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wane.memory import POLICIES, Memory, class_uniform, herding_ranks, shares


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def batch(n, generator, low=0, high=6):
    images = torch.randint(256, (n, 3, 2, 2), generator=generator, dtype=torch.uint8)
    labels = torch.randint(low, high, (n,), generator=generator)
    return images, labels, {"logits": torch.randn(n, 6, generator=generator)}


def build(policy, capacity=40):
    return Memory(capacity, (3, 2, 2), 6, policy=policy, extras={"logits": (6,)})


@pytest.mark.parametrize("policy", ["reservoir", "class_balanced"])
def test_every_column_of_a_slot_belongs_to_the_same_row(policy):
    memory, generator, rows = build(policy), seeded(0), {}
    for step in range(20):
        images, labels, extras = batch(16, generator)
        slots = memory.offer(images, labels, task=step // 5, step=step, generator=generator, extras=extras)
        for i, slot in enumerate(slots.tolist()):
            if slot >= 0:
                rows[slot] = (images[i], labels[i], step // 5, step, extras["logits"][i])
    assert len(rows) == len(memory) == 40
    assert memory.seen == 320
    for slot, (image, label, task, step, logits) in rows.items():
        assert torch.equal(memory.images[slot], image)
        assert memory.labels[slot] == label
        assert (memory.tasks[slot], memory.steps[slot]) == (task, step)
        assert torch.equal(memory.extras["logits"][slot], logits)
    assert memory.class_counts().tolist() == torch.bincount(memory.labels, minlength=6).tolist()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cut", [1, 3, 9])
def test_saved_loaded_and_continued_equals_uninterrupted_to_the_bit(policy, cut):
    def go(memory, generator, steps):
        drawn = []
        for step in steps:
            images, labels, extras = batch(16, generator, high=2 + step // 3)
            memory.offer(images, labels, task=0, step=step, generator=generator, extras=extras)
            if policy == "herding" and step % 3 == 0:
                memory.select(images, labels, extras["logits"], task=0, step=step, extras=extras)
            drawn += memory.draw(8, generator=generator).tolist()
            p = class_uniform(memory.class_counts())
            drawn += memory.draw(8, generator=generator, class_probabilities=p).tolist()
        return drawn

    whole, generator = build(policy), seeded(1)
    expected = go(whole, generator, range(12))

    first, generator = build(policy), seeded(1)
    drawn = go(first, generator, range(cut))
    file = io.BytesIO()
    torch.save({"memory": first.state_dict(), "generator": generator.get_state()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    second, generator = build(policy), torch.Generator()
    second.load_state_dict(state["memory"])
    generator.set_state(state["generator"])
    assert len(second) == len(first)
    assert second.seen == first.seen == 16 * cut
    drawn += go(second, generator, range(cut, 12))

    assert drawn == expected
    a, b = whole.state_dict(), second.state_dict()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_extras_can_be_rewritten_in_place():
    memory, generator = build("reservoir"), seeded(0)
    images, labels, extras = batch(16, generator)
    memory.offer(images, labels, task=0, step=0, generator=generator, extras=extras)
    slots = memory.draw(4, generator=generator)
    memory.extras["logits"][slots] = 7.0
    assert memory.state_dict()["extras.logits"][slots].eq(7).all()


def test_extras_of_half_precision_with_a_gradient_are_stored_in_float32():
    memory = build("reservoir")
    images, labels, _ = batch(4, seeded(0))
    logits = torch.ones(4, 6, dtype=torch.bfloat16, requires_grad=True)
    memory.offer(images, labels, task=0, step=0, generator=seeded(0), extras={"logits": logits})
    assert memory.extras["logits"].dtype == torch.float32
    assert memory.extras["logits"][:4].eq(1).all()
    assert not memory.extras["logits"].requires_grad


def test_the_memory_costs_its_images():
    memory = Memory(2_000, (3, 32, 32), 100)
    columns = {k: v.element_size() * v.numel() for k, v in memory.state_dict().items()}
    assert columns.pop("images") == 2_000 * 3_072
    assert sum(columns.values()) == 4 * 8 * 2_000 + 8


def test_an_empty_batch_changes_nothing():
    for policy in POLICIES:
        memory = build(policy)
        images, labels, extras = batch(0, seeded(0))
        assert memory.offer(images, labels, task=0, step=0, generator=seeded(0), extras=extras).shape == (0,)
        assert len(memory) == memory.seen == 0


def gaps(features, taken):
    """Distance of the class mean to that of the taken rows and row i, for every i not yet taken."""
    mean = features.mean(0)
    return [
        np.inf if i in taken else np.linalg.norm(mean - features[[*taken, i]].mean(0)) for i in range(len(features))
    ]


def brute_force_herding(features, wanted):
    """Rows of one class in the order of the greedy choice, by trying every row at every turn."""
    taken = []
    for _ in range(min(wanted, len(features))):
        taken.append(int(np.argmin(gaps(features, taken))))
    return taken


@settings(max_examples=50)
@given(st.lists(st.integers(0, 25), min_size=1, max_size=5), st.integers(0, 2**32), st.data())
def test_herding_is_the_brute_force_choice(sizes, seed, data):
    wanted = torch.tensor([data.draw(st.integers(0, 20)) for _ in sizes])
    generator = seeded(seed)
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    features = torch.randn(len(labels), 4, generator=generator, dtype=torch.float64)
    ranks = herding_ranks(features, labels, wanted)
    for c in range(len(sizes)):
        mine, rank = features[labels == c].numpy(), ranks[labels == c].tolist()
        assert sorted(r for r in rank if r >= 0) == list(range(min(sizes[c], int(wanted[c]))))
        order = [rank.index(turn) for turn in range(max(rank, default=-1) + 1)]
        for turn, choice in enumerate(order):  # of two rows both are equally near: no order is asked of ties
            distances = gaps(mine, order[:turn])
            assert distances[choice] <= min(distances) + 1e-12
        if sizes[c] > 2:
            assert order == brute_force_herding(mine, int(wanted[c]))


def test_herding_memory_selects_trims_and_keeps_the_best():
    memory, generator, orders = build("herding", capacity=20), seeded(0), {}
    for task in range(3):
        images, labels, extras = batch(60, generator, 2 * task, 2 * task + 2)
        features = torch.randn(60, 5, generator=generator, dtype=torch.float64)
        kept = memory.offer(images, labels, task=task, step=task, generator=generator, extras=extras)
        assert kept.eq(-1).all()
        memory.select(images, labels, features, task=task, step=task, extras=extras)
        for c in (2 * task, 2 * task + 1):
            rows = (labels == c).nonzero().squeeze(1)
            order = rows[torch.tensor(brute_force_herding(features[rows].numpy(), 10))]
            orders[c] = images[order]
        counts = memory.class_counts()
        share = shares(np.array([30] * (2 * task + 2) + [0] * (4 - 2 * task)), 20)
        assert counts.tolist() == share.tolist()  # 10 each, then 5, then 4 4 3 3 3 3
        assert len(memory) == 20
        for c, best in orders.items():
            rows = (memory.labels == c).nonzero().squeeze(1)
            stored = memory.images[rows[memory.priority[rows].argsort()]]
            assert torch.equal(stored, best[: int(counts[c])])
            assert memory.tasks[rows].eq(c // 2).all()
    assert memory.seen == 180


def test_herding_again_replaces_a_class_and_may_leave_slots_empty():
    memory, generator = build("herding", capacity=20), seeded(0)
    for n in (30, 3):
        images, labels, extras = batch(n, generator, 0, 1)
        memory.select(images, labels, torch.randn(n, 4, generator=generator), task=0, step=0, extras=extras)
    assert len(memory) == 3
    assert torch.equal(memory.images[:3][memory.priority[:3].argsort(descending=True)].sum(), images.sum())
    assert memory.labels.tolist() == [0] * 3 + [-1] * 17
    assert memory.images[3:].eq(0).all()
    assert memory.draw(9, generator=generator).sort().values.tolist() == [0, 1, 2]


IMAGES, ZEROS = torch.zeros(4, 3, 2, 2, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("images", "labels", "extras", "message"),
    [
        (
            IMAGES.float(),
            ZEROS,
            {},
            r"torch.float32 of shape \(4, 3, 2, 2\): give torch.uint8, not augmented",
        ),
        (IMAGES[:, :1], ZEROS, {}, r"shape \(4, 1, 2, 2\).*\(n, 3, 2, 2\)"),
        (IMAGES, ZEROS[:3], {}, r"labels are torch.int64 of shape \(3,\): give torch.int64 of shape \(4,\)"),
        (IMAGES, ZEROS.int(), {}, "labels are torch.int32"),
        (IMAGES, ZEROS + 6, {}, "labels run from 6 to 6: num_classes allows 0 to 5"),
        (IMAGES, ZEROS - 1, {}, "labels run from -1"),
        (IMAGES, ZEROS, {}, r"extras have shapes \{\}: this memory was built for \{'logits': \(4, 6\)\}"),
        (IMAGES, ZEROS, {"logits": torch.zeros(4, 5)}, r"'logits': \(4, 5\)"),
        (IMAGES, ZEROS, {"logit": torch.zeros(4, 6)}, "'logit'"),
    ],
)
def test_bad_offers_are_quoted_and_leave_the_memory_as_it_was(images, labels, extras, message):
    memory = build("reservoir")
    with pytest.raises(ValueError, match=message):
        memory.offer(images, labels, task=0, step=0, generator=seeded(0), extras=extras)
    assert len(memory) == memory.seen == 0


def test_bad_arguments_are_quoted():
    with pytest.raises(
        ValueError, match=r"unknown policy 'resevoir'; did you mean 'reservoir'.*class_balanced, herding"
    ):
        build("resevoir")
    with pytest.raises(ValueError, match="capacity=0"):
        Memory(0, (1, 1, 1), 2)
    for capacity in (10**15, 10**30):
        with pytest.raises(ValueError, match=f"capacity={capacity} rows of .* do not fit into memory"):
            Memory(capacity, (3, 32, 32), 2)
    with pytest.raises(ValueError, match="this memory has 'reservoir': use offer"):
        build("reservoir").select(IMAGES, ZEROS, torch.zeros(4, 2), task=0, step=0)
    with pytest.raises(ValueError, match=r"features are \(3, 2\): give \(4, d\)"):
        Memory(4, (3, 2, 2), 6, policy="herding").select(IMAGES, ZEROS, torch.zeros(3, 2), task=0, step=0)
    nan = torch.tensor([0.0, torch.nan, 0.0, torch.inf]).unsqueeze(1)
    with pytest.raises(ValueError, match="2 rows of features hold NaN"):
        Memory(4, (3, 2, 2), 6, policy="herding").select(IMAGES, ZEROS, nan, task=0, step=0)
    with pytest.raises(ValueError, match=r"the state holds .*'labels': \(40,\).*this memory .*'labels': \(39,\)"):
        build("reservoir", 39).load_state_dict(build("reservoir", 40).state_dict())


@pytest.mark.parametrize(("shape", "dtype"), [((5,), torch.float32), ((2, 3), torch.int64), ((), torch.int32)])
@pytest.mark.parametrize("policy", POLICIES)
def test_rows_of_any_type_and_shape(policy, shape, dtype):
    memory, generator = Memory(8, shape, 4, policy=policy, dtype=dtype), seeded(0)
    rows, labels = (torch.rand(20, *shape, generator=generator) * 100).to(dtype), torch.arange(20) % 4
    slots = memory.offer(rows, labels, task=0, step=0, generator=generator)
    if policy == "herding":
        memory.select(rows, labels, torch.randn(20, 3, generator=generator), task=0, step=0)
        memory.select(rows[:1], labels[:1], torch.randn(1, 3, generator=generator), task=0, step=0)
        assert memory.images[len(memory) :].eq(0).all()
        assert (memory.labels[len(memory) :] == -1).all()
    else:
        kept = slots >= 0
        assert torch.equal(memory.images[slots[kept]], rows[kept])
    assert memory.images.dtype == dtype
    twin = Memory(8, shape, 4, policy=policy, dtype=dtype)
    twin.load_state_dict(memory.state_dict())
    assert torch.equal(twin.images, memory.images)
    with pytest.raises(ValueError, match=f"give {dtype}, not augmented"):
        memory.offer(rows.double(), labels, task=0, step=0, generator=generator)
    with pytest.raises(ValueError, match=f"the state holds {dtype} rows, this memory torch.uint8"):
        Memory(8, shape, 4, policy=policy).load_state_dict(memory.state_dict())
