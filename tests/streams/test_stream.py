"""Streams: a data set divided into tasks by its classes or its domains."""

import pytest
import torch
from streams.test_dataset import dataset

from wane.streams import DataError, from_arrays, load_dataset, make_stream, with_holdout


@pytest.mark.parametrize("class_order", ["label", "shuffled", [5, 4, 3, 2, 1, 0]])
@pytest.mark.parametrize("tasks", [1, 2, 3, 6])
def test_tasks_partition_the_data(tasks, class_order):
    data = dataset()
    stream = make_stream(data, tasks, class_order, seed=3)
    assert len(stream) == tasks == len(list(stream))
    assert torch.cat([t.train for t in stream]).sort().values.tolist() == list(range(len(data.train)))
    assert torch.cat([t.test for t in stream]).sort().values.tolist() == list(range(len(data.test)))
    for k, task in enumerate(stream):
        assert task.index == k
        assert len(task.classes) == 6 // tasks
        assert set(data.train.labels[task.train].tolist()) == set(task.classes)
        assert (stream.class_to_task[data.test.labels[task.test]] == k).all()
        assert stream.seen(k) == tuple(c for t in list(stream)[: k + 1] for c in t.classes)
        assert task.train.dtype == torch.int64


def test_class_orders():
    data = dataset()
    assert make_stream(data, 2).class_order == (0, 1, 2, 3, 4, 5)
    shuffled = [make_stream(data, 2, "shuffled", seed=s).class_order for s in (0, 0, 1)]
    assert shuffled[0] == shuffled[1] != shuffled[2]
    assert make_stream(data, 2, (3, 1, 2, 0, 5, 4))[0].classes == (3, 1, 2)


def test_bad_streams_are_quoted():
    data = dataset()
    with pytest.raises(DataError, match=r"tasks=7, but arrays has 6 classes: use 1 to 6 tasks"):
        make_stream(data, 7)
    with pytest.raises(DataError, match="tasks=0"):
        make_stream(data, 0)
    with pytest.raises(DataError, match="class_order='random' is unknown"):
        make_stream(data, 2, "random")
    with pytest.raises(DataError, match=r"each label 0..5 exactly once"):
        make_stream(data, 2, [0, 1, 2, 3, 4, 4])
    with pytest.raises(DataError, match="no task 2"):
        make_stream(data, 2).seen(2)


@pytest.mark.parametrize(
    ("classes", "tasks", "sizes"),
    [(10, 3, [4, 3, 3]), (7, 5, [2, 2, 1, 1, 1]), (6, 4, [2, 2, 1, 1]), (3, 3, [1, 1, 1])],
)
@pytest.mark.parametrize("order", ["label", "shuffled"])
def test_uneven_tasks_are_as_even_as_possible_and_larger_first(classes, tasks, sizes, order):
    data = dataset(classes=classes)
    stream = make_stream(data, tasks, order, seed=2)
    assert [len(task.classes) for task in stream] == sizes
    assert sorted(stream.class_order) == list(range(classes))
    assert [stream.class_to_task[list(task.classes)].tolist() for task in stream] == [
        [k] * n for k, n in enumerate(sizes)
    ]
    assert torch.cat([t.train for t in stream]).sort().values.tolist() == list(range(len(data.train)))
    assert stream.seen(tasks - 1) == stream.class_order


ANIMALS = ("cat", "dog", "car", "cab", "bus")


def named():
    labels, images = torch.arange(20) % 5, torch.zeros(20, 1, 2, 2, dtype=torch.uint8)
    return from_arrays(images, labels, images, labels, layout="NCHW", class_names=ANIMALS, name="street")


def test_tasks_by_name_and_label():
    stream = make_stream(named(), [["bus", "cat"], [2], ["3", "dog"]])
    assert [task.classes for task in stream] == [(4, 0), (2,), (3, 1)]
    assert stream.seen(1) == (4, 0, 2)
    assert stream.class_to_task.tolist() == [0, 2, 1, 2, 0]
    assert [task.name for task in stream] == ["task 1", "task 2", "task 3"]


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ([["cat", "dgo"], ["car", "cab"]], r"'dgo' is unknown \(did you mean 'dog'\?\); 'dog', 'bus' are missing"),
        ([["cat", "dog"], ["car", "cab", "bus", "cat"]], "each of the 5 classes of street once: 'cat' is named more"),
        ([["cat", "dog", "car", "cab", "bus"], []], "task 2 is empty"),
        ([[0, 1, 2], [3, 5]], r"5 is unknown \(labels are 0..4\); 'bus' is missing"),
        (["cat", "dog"], "a list of lists"),
        ("cat", "a list of lists"),
    ],
)
def test_wrong_names_are_all_listed_at_once(tasks, words):
    with pytest.raises(DataError, match=words):
        make_stream(named(), tasks)


def test_a_name_of_two_classes_is_refused():
    labels, images = torch.arange(4) % 2, torch.zeros(4, 1, 2, 2, dtype=torch.uint8)
    twins = from_arrays(images, labels, images, labels, layout="NCHW", class_names=["crane", "crane"])
    with pytest.raises(DataError, match="'crane' is the name of labels 0, 1: use the labels"):
        make_stream(twins, [["crane"], [1]])
    assert make_stream(twins, [[1], [0]])[0].classes == (1,)


def test_lists_of_tasks_and_another_order_contradict():
    with pytest.raises(DataError, match="class_order='shuffled', but lists as tasks give the order already"):
        make_stream(named(), [["cat", "dog"], ["car", "cab", "bus"]], "shuffled")


def domain_data(holdout=0):
    """Three domains; class 2 does not occur in the first."""
    cells = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    rows = torch.tensor(cells * 4)
    images = torch.arange(len(rows), dtype=torch.uint8).view(-1, 1, 1, 1)
    labels, domains = rows[:, 1], rows[:, 0]
    data = from_arrays(images, labels, images, labels, layout="NCHW", class_names=["a", "b", "c"],
                       train_domains=domains, test_domains=domains, domain_names=["rain", "snow", "sun"])  # fmt: skip
    return with_holdout(data, holdout) if holdout else data


def test_a_task_of_a_domain_stream_is_a_domain():
    data = domain_data(holdout=2)
    stream = make_stream(data, 3, kind="domains")
    assert [task.name for task in stream] == ["rain", "snow", "sun"]
    assert [task.classes for task in stream] == [(0, 1), (0, 1, 2), (0, 1, 2)]
    assert stream.task_classes(1) == (0, 1, 2)
    assert (stream.seen(0), stream.seen(1)) == ((0, 1), (0, 1, 2))
    for k, task in enumerate(stream):
        assert (data.train.domains[task.train] == k).all()
        assert (data.test.domains[task.test] == k).all()
    for name in ("train", "test", "holdout"):
        assert torch.equal(stream.tasks_of(name), getattr(data, name).domains)
    assert torch.cat([t.test for t in stream]).sort().values.tolist() == list(range(len(data.test)))


def test_groups_of_a_domain_stream_are_classes_within_tasks():
    stream = make_stream(domain_data(), kind="domains")
    labels, tasks = stream.dataset.test.labels, stream.tasks_of("test")
    groups = stream.groups(labels, tasks)
    assert stream.num_groups == 9 == len(stream.group_names)
    assert torch.equal(stream.group_to_task[groups], tasks)
    assert stream.group_names[4] == "snow: b"
    assert torch.equal(groups % 3, labels)
    with pytest.raises(DataError, match="a class has no task of its own"):
        _ = stream.class_to_task


def test_groups_of_a_class_stream_are_its_classes():
    stream = make_stream(dataset(), 3)
    labels, tasks = stream.dataset.train.labels, stream.tasks_of("train")
    assert stream.num_groups == 6
    assert stream.group_names == stream.dataset.class_names
    assert torch.equal(stream.groups(labels, tasks), labels)
    assert torch.equal(stream.group_to_task, stream.class_to_task)
    assert torch.equal(tasks, stream.class_to_task[labels])
    with pytest.raises(DataError, match="no split 'holdout' in arrays: it has train, test"):
        stream.tasks_of("holdout")


def test_domains_may_share_a_task_and_come_in_another_order():
    data = domain_data()
    assert [t.name for t in make_stream(data, 2, kind="domains")] == ["rain, snow", "sun"]
    assert [t.name for t in make_stream(data, [["sun"], ["rain", "snow"]], kind="domains")] == ["sun", "rain, snow"]
    assert [t.name for t in make_stream(data, 3, [2, 0, 1], kind="domains")] == ["sun", "rain", "snow"]
    with pytest.raises(DataError, match="tasks=5, but arrays has 3 domains: use 1 to 3 tasks"):
        make_stream(data, 5, kind="domains")


def test_data_without_domains_and_an_unknown_kind_are_refused():
    with pytest.raises(
        DataError, match=r"arrays has no domains: give from_arrays train_domains .* from_folder domains=True"
    ):
        make_stream(dataset(), kind="domains")
    with pytest.raises(DataError, match="kind='tasks' is unknown: use 'classes' or 'domains'"):
        make_stream(dataset(), kind="tasks")


def test_the_fonts_of_the_glyphs_are_domains():
    data = load_dataset("glyphs", holdout=5)
    stream = make_stream(data, kind="domains")
    assert [task.name for task in stream] == ["Sans", "Mono", "Serif"]
    for task in stream:
        assert 0.28 * len(data.train) < len(task.train) < 0.38 * len(data.train)
        assert len(task.classes) == 100
    # the I of Mono and Serif has bars that the I of Sans lacks, so it is wider
    letter = data.class_names.index("I")
    top = [data.train.images[t.train][data.train.labels[t.train] == letter].float().std(3).mean() for t in stream]
    assert len({round(float(value)) for value in top}) > 1
