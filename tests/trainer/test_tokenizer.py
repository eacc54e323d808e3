"""The character tokenizer: ids, round trips, the saved folder."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from regimescope.trainer.tokenizer import CHARACTERS, EOS_ID, PAD_ID, VOCABULARY_SIZE, build_tokenizer

TOKENIZER = build_tokenizer()


def test_golden_ids() -> None:
    assert TOKENIZER.encode("3+5-2=") == [5, 12, 7, 13, 4, 14]
    assert TOKENIZER.encode("0;#CW") == [2, 15, 16, 17, 18]
    assert (TOKENIZER.pad_token_id, TOKENIZER.eos_token_id) == (PAD_ID, EOS_ID) == (0, 1)
    assert len(TOKENIZER) == VOCABULARY_SIZE == 19


@given(st.text(CHARACTERS, max_size=100))
def test_one_token_per_character_and_back(text: str) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    assert len(ids) == len(text)
    assert TOKENIZER.decode(ids) == text
    assert TOKENIZER.decode([PAD_ID, *ids, EOS_ID], skip_special_tokens=True) == text


@pytest.mark.parametrize("text", ["3 + 5", "x", "ä", "<"])
def test_an_unknown_character_raises(text: str) -> None:
    with pytest.raises(Exception, match="UNK"):
        TOKENIZER.encode(text)


def test_special_tokens_have_their_ids() -> None:
    assert TOKENIZER.convert_tokens_to_ids(["<pad>", "<eos>"]) == [0, 1]


def test_the_saved_folder_works_with_auto_tokenizer(tmp_path: Path) -> None:
    TOKENIZER.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    loaded = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert loaded.is_fast
    assert loaded.encode("12-7=5;#5") == TOKENIZER.encode("12-7=5;#5")
    assert (loaded.pad_token_id, loaded.eos_token_id, len(loaded)) == (0, 1, 19)
