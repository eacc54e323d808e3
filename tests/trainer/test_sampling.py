"""Rounds of dynamic sampling: what is asked for again, what is trained on, what is counted."""

import torch

from regimescope.trainer.answers.verifier import Outcome
from regimescope.trainer.responses import Response
from regimescope.trainer.sampling import Judged, both_verdicts, dynamic_sampling

MIXED: tuple[Outcome, Outcome] = ("correct", "incorrect")
RIGHT: tuple[Outcome, Outcome] = ("correct", "correct")
FAILED: tuple[Outcome, Outcome] = ("incorrect", "infra_failed")


class Draw:
    """Rounds of two groups of two, as given; remembers which rounds were asked for."""

    def __init__(self, *rounds: tuple[tuple[Outcome, Outcome], tuple[Outcome, Outcome]]) -> None:
        self.rounds, self.asked = rounds, list[int]()

    def __call__(self, turn: int) -> Judged:
        self.asked.append(turn)
        responses = [
            Response(token_ids=(turn, group, 1), ended=True, outcome=outcome)
            for group, outcomes in enumerate(self.rounds[turn])
            for outcome in outcomes
        ]
        rewards = [[1.0 if o == "correct" else -1.0 for o in group] for group in self.rounds[turn]]
        return Judged(prompts=[[2]] * 4, responses=responses, rewards=torch.tensor(rewards), weight_version=7)


def test_without_further_rounds_every_group_is_taken() -> None:
    draw = Draw((RIGHT, MIXED))
    judged, chosen = dynamic_sampling(draw, rounds=0)
    assert (chosen, draw.asked, len(judged.responses)) == ([0, 1], [0], 4)


def test_it_asks_until_the_batch_is_full_and_takes_no_more() -> None:
    draw = Draw((RIGHT, MIXED), (RIGHT, RIGHT), (MIXED, MIXED), (MIXED, MIXED))
    judged, chosen = dynamic_sampling(draw, rounds=3)
    assert draw.asked == [0, 1, 2]
    assert chosen == [1, 4]  # the second of round 0, the first of round 2; one too many is left out
    assert [judged.responses[2 * group].token_ids[:2] for group in chosen] == [(0, 1), (2, 0)]
    assert judged.rewards.shape == (6, 2) and len(judged.prompts) == len(judged.responses) == 12
    assert judged.weight_version == 7


def test_after_the_last_round_it_takes_what_there_is() -> None:
    draw = Draw(*[(RIGHT, FAILED)] * 4)
    judged, chosen = dynamic_sampling(draw, rounds=3)
    assert (draw.asked, chosen, len(judged.rewards)) == ([0, 1, 2, 3], [], 8)


def test_a_group_needs_both_verdicts() -> None:
    assert both_verdicts(Draw((FAILED, MIXED))(0)) == [1]


def test_some_of_the_groups() -> None:
    judged = Draw((RIGHT, MIXED))(0).of_groups([1])
    assert [r.outcome for r in judged.responses] == ["correct", "incorrect"] and judged.rewards.tolist() == [
        [1.0, -1.0]
    ]
