"""The open questions: differences paired by seed, between the right runs."""

import polars as pl
import pytest
from views.hand_made import made_replay, write_run

from wane.paper.methods import class_uniform, er, uniform_past
from wane.paper.questions import QUESTIONS, answers, answers_csv, answers_markdown, effective_share
from wane.paper.reproduction import PARTS
from wane.runs.identity import method_of
from wane.sweeps.plan import expand

SCHEDULE = {"learner": {"milestones": [3]}}
PAST = {"memory": {"draw": "class_uniform", "scope": "past"}}
CONSTANT = {"learner": {"milestones": [3], "decay": 1.0}}


def runs_of(root, settings, ends):
    """Runs that end with these accuracies of the old task; the new one has 90 %."""
    return [
        write_run(root / f"{seed}", [SCHEDULE, settings, {"seed": seed}], matrix=((0.8, None), (end, 0.9)))
        for seed, end in enumerate(ends)
    ]


def test_differences_are_paired_by_seed(tmp_path):
    runs = runs_of(tmp_path / "er", {}, (0.4, 0.5, 0.6)) + runs_of(tmp_path / "past", PAST, (0.5, 0.6, 0.7, 0.1))
    [answer] = answers(runs)
    assert (answer.question.method, answer.question.against) == (class_uniform("past"), er())
    for measure, expected in {"accuracy": 5, "forgetting": -10, "retention": 10, "plasticity": 0}.items():
        assert answer.differences[measure].difference == pytest.approx(expected)
        assert answer.differences[measure].n == 3  # the fourth seed has no partner
    text = answers_markdown([answer])
    assert "**+5.0\u00a0[+5.0,\u00a0+5.0]**" in text
    table = pl.read_csv(answers_csv([answer]).encode())
    assert table.filter(measure="forgetting")["difference"].to_list() == pytest.approx([-10])


def test_two_seeds_are_not_enough_for_bold(tmp_path):
    """However alike they are; with a third one they are."""
    er_runs, past = (runs_of(tmp_path / name, given, ends) for name, given, ends in
                     (("er", {}, (0.4, 0.5, 0.6)), ("past", PAST, (0.5, 0.6, 0.7))))  # fmt: skip
    shown = [answers_markdown(answers([*er_runs[:n], *past])) for n in (1, 2, 3)]
    assert ["**" in text for text in shown] == [False, False, True]
    assert "0 intervals, each at 95 %" in shown[1]
    assert "4 intervals, each at 95 % by itself: 3 exclude zero" in shown[2]  # plasticity is the same


def test_images_set_aside_are_compared_among_themselves(tmp_path):
    """The same draw is there with fewer images to train on, and without: only the former counts."""
    aside = {"data": {"holdout": 25}}
    drawn = {"learner": {"trend": {"signal": "log_tlr", "source": "holdout"}}}
    usual = {"learner": {"trend": {"signal": "log_tlr"}}}
    runs = runs_of(tmp_path / "whole", usual, (0.9, 0.9)) + runs_of(tmp_path / "fewer", aside | usual, (0.4, 0.5))
    runs += runs_of(tmp_path / "held", aside | drawn, (0.6, 0.7))
    [answer] = answers(runs)
    assert answer.question.aside
    assert answer.differences["retention"].difference == pytest.approx(20)
    assert "trend log_tlr, images set aside" in answers_markdown([answer])


def test_a_constant_rate_is_compared_with_the_schedule_and_nothing_else(tmp_path):
    runs = runs_of(tmp_path / "er", {}, (0.4, 0.5)) + runs_of(tmp_path / "flat", CONSTANT, (0.6, 0.7))
    runs += runs_of(tmp_path / "past", PAST, (0.5, 0.6))
    found = {(a.question.method, a.question.constant): a.differences["retention"].difference for a in answers(runs)}
    assert found == {(class_uniform("past"), False): pytest.approx(10), (er(), True): pytest.approx(-20)}


def test_without_any_schedule_the_other_questions_are_still_answered(tmp_path):
    runs = [*runs_of(tmp_path / "er", CONSTANT, (0.4,)), *runs_of(tmp_path / "past", CONSTANT | PAST, (0.5,))]
    assert [a.question.method for a in answers(runs)] == [class_uniform("past")]


def test_effective_share_is_of_the_seen_classes(tmp_path):
    run = write_run(tmp_path / "run", replay=made_replay([[2, 2, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]], [0, 1, 1]))
    assert effective_share(run) == pytest.approx(75)  # 3 of 4; the first task does not count
    assert effective_share(write_run(tmp_path / "none")) is None


def test_the_runs_of_a_recipe_answer_their_questions(tmp_path):
    """The printed sign, past slots and images set aside are asked about, and their recipes have both sides."""
    runs = [write_run(tmp_path / plan.name, [plan.config.model_dump(mode="json", exclude_none=True)])
            for plan in expand("controls", "sources", over={"seed": [0]})]  # fmt: skip
    asked = [(q.method, q.aside) for q in QUESTIONS if q.aside or q.method == uniform_past()
             or (q.method.trend is not None and q.method.trend.literal)]  # fmt: skip
    answered = {(a.question.method, a.question.aside) for a in answers(runs)}
    assert len(asked) == 11
    assert answered >= set(asked)


def test_every_question_is_about_methods_that_a_recipe_runs():
    known = {method_of(plan.config) for plan in expand(*PARTS)}
    assert {name for question in QUESTIONS for name in (question.method, question.against)} <= known
