"""A tokenizer that needs no library: a word is a token, a mark before and after."""

import zlib

import torch

VOCABULARY = 9973
START, END, FIRST = 1, 2, 3


class Words:
    name = "words"
    pad = 0

    def token(self, word):
        return FIRST + zlib.crc32(word.encode()) % VOCABULARY

    def encode(self, texts, max_length):
        rows = [
            [START, *[self.token(word) for word in text.split()][: max_length - 2], END]
            for text in texts
        ]
        width = max(map(len, rows))
        return torch.tensor([row + [self.pad] * (width - len(row)) for row in rows])
