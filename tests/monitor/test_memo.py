"""The memo: one answer per key and stamp."""

from __future__ import annotations

from regimescope.monitor.memo import MAX_KEYS, Memo


def test_an_answer_is_made_once_per_stamp() -> None:
    memo: Memo[int] = Memo()
    made = []

    def make() -> int:
        made.append(1)
        return len(made)

    assert [memo.get("a", 1, make), memo.get("a", 1, make), memo.get("a", 2, make), memo.get("b", 2, make)] == [
        1,
        1,
        2,
        3,
    ]


def test_the_key_that_was_used_longest_ago_goes() -> None:
    memo: Memo[int] = Memo()
    for key in range(MAX_KEYS):
        memo.get(key, 0, lambda: 0)
    memo.get(0, 0, lambda: 1)
    memo.get("new", 0, lambda: 2)
    assert memo.get(0, 0, lambda: 3) == 0
    assert memo.get(1, 0, lambda: 4) == 4
