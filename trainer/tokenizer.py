"""The character tokenizer of the tiny policy: 17 characters, a pad and an end token, saved as a fast tokenizer.

Ids: pad 0, end 1, then the characters. An unknown character is an error, never a silent gap.
`build_tokenizer().save_pretrained(folder)` writes `tokenizer.json` and `tokenizer_config.json`, which
`AutoTokenizer.from_pretrained(folder)` reads.
"""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHARACTERS = "0123456789+-=;#CW"
PAD, EOS = "<pad>", "<eos>"
PAD_ID, EOS_ID = 0, 1
VOCABULARY_SIZE = 2 + len(CHARACTERS)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A new character tokenizer; encoding adds no special tokens, decoding gives back the very text."""
    vocabulary = {token: i for i, token in enumerate((PAD, EOS, *CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # which is not there: unknown ones raise
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
