import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.data.typos import NEIGHBOURS, SHARES, TYPOS, misspell

TEXT = "take care of my cat offers a refreshingly different slice of asian cinema ."
LETTERS = sum(map(str.isalpha, TEXT))
KINDS = sorted(TYPOS)
GOLDEN = [
    "take care of my cta offers a refreshignly diffreent sliec of aisan cienma .",
    "ta care of my cat offers a refreshigly diferent slice of asan ciema .",
    "takw catr of my cat offers a refrsshinfly dkfferent slice of asian cinema .",
]
KEYS = "abcdefghijklmnopqrstuvwxyz"

any_text = st.text(st.sampled_from("abcdeXYZ éßд漢 \t\n.,'-09_²"), max_size=40)
quick = settings(max_examples=60, deadline=None)


def words(text):
    return re.findall(r"[^\W\d_]+", text)


def changes(clean, spoilt):
    return [i for i, (a, b) in enumerate(zip(clean, spoilt, strict=True)) if a != b]


def errors(kind, clean, spoilt):
    """Typing errors between two texts, counted without the code under test."""
    if kind == "typo_drop":
        return len(clean) - len(spoilt)
    found = len(changes(clean, spoilt))
    return found // 2 if kind == "typo_swap" else found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("severity", range(1, 6))
def test_the_number_of_errors_is_the_share_rounded_up_or_down(kind, severity):
    wanted = SHARES[severity - 1] * LETTERS
    found = [errors(kind, TEXT, spoilt) for spoilt in misspell([TEXT] * 40, kind, severity)]
    assert set(found) <= {int(wanted), int(wanted) + 1}
    assert abs(sum(found) / 40 - wanted) < 0.35


@pytest.mark.parametrize("kind", KINDS)
def test_short_texts_get_their_share_on_average(kind):
    """A text of 8 letters has room for 0.16 errors at severity 1: most must get none."""
    spoilt = misspell(["good film"] * 2000, kind, 1)
    found = sum(errors(kind, "good film", text) for text in spoilt)
    # Binomial with 2000 draws of 0.16: four standard deviations are 66.
    assert abs(found - 2000 * 0.02 * 8) < 66


@given(any_text, st.sampled_from(KINDS), st.integers(1, 5), st.integers(0, 10**6))
@quick
def test_words_keep_their_first_letter_and_what_is_between_them(text, kind, severity, start):
    (spoilt,) = misspell([text], kind, severity, start=start)
    assert [word[0] for word in words(spoilt)] == [word[0] for word in words(text)]
    assert re.split(r"[^\W\d_]+", spoilt) == re.split(r"[^\W\d_]+", text)


@given(any_text, st.integers(1, 5), st.integers(0, 10**6))
@quick
def test_swaps_move_adjacent_letters_and_nothing_else(text, severity, start):
    (spoilt,) = misspell([text], "typo_swap", severity, start=start)
    moved = changes(text, spoilt)
    for first, second in zip(moved[::2], moved[1::2], strict=True):
        assert second == first + 1
        assert spoilt[first : second + 1] == text[first : second + 1][::-1]


@given(any_text, st.integers(1, 5), st.integers(0, 10**6))
@quick
def test_what_is_left_after_drops_keeps_its_order(text, severity, start):
    (spoilt,) = misspell([text], "typo_drop", severity, start=start)
    rest = iter(text)
    assert all(letter in rest for letter in spoilt)


@given(any_text, st.integers(1, 5), st.integers(0, 10**6))
@quick
def test_neighbours_are_neighbours_in_the_same_case(text, severity, start):
    (spoilt,) = misspell([text], "typo_neighbour", severity, start=start)
    for place in changes(text, spoilt):
        assert spoilt[place] in NEIGHBOURS[text[place]]
        assert spoilt[place].isupper() == text[place].isupper()


def test_the_keyboard():
    beside = {
        "q": "wa",
        "a": "qwsz",
        "g": "tyfhvb",
        "s": "weadzx",
        "p": "ol",
        "m": "njk",
        "l": "opk",
        "z": "asx",
    }
    for key, others in beside.items():
        assert set(NEIGHBOURS[key]) == set(others)
        assert set(NEIGHBOURS[key.upper()]) == set(others.upper())
    assert sorted(key for key in NEIGHBOURS if key.islower()) == list(KEYS)
    for key in KEYS:
        assert all(key in NEIGHBOURS[other] for other in NEIGHBOURS[key])


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_depends_on_its_index_and_on_no_other_text(kind):
    texts = [TEXT, "short one", TEXT, "and a last sentence , longer than the others before it"]
    whole = misspell(texts, kind, 4)
    assert [*misspell(texts[:1], kind, 4), *misspell(texts[1:], kind, 4, start=1)] == whole
    assert whole[0] != whole[2]
    assert misspell(texts, kind, 4) == whole
    assert misspell(texts, kind, 4, seed=1) != whole


def test_errors_fall_where_they_always_fell():
    """Stored results were measured on these texts: another draw would make them incomparable."""
    kinds = ("typo_swap", "typo_drop", "typo_neighbour")
    assert [misspell([TEXT], kind, 3)[0] for kind in kinds] == GOLDEN


@pytest.mark.parametrize("kind", KINDS)
def test_higher_severities_hit_more(kind):
    counts = [
        sum(errors(kind, TEXT, text) for text in misspell([TEXT] * 20, kind, severity))
        for severity in range(1, 6)
    ]
    assert counts == sorted(set(counts))


@pytest.mark.parametrize("text", ["", "   \t ", "1234 !? 5-6", "a b c d", "I"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_without_room_stays(kind, text):
    assert misspell([text] * 5, kind, 5) == [text] * 5


def test_equal_letters_are_not_swapped():
    assert misspell(["aaaaaa xoo"] * 5, "typo_swap", 5) == ["aaaaaa xoo"] * 5


def test_other_alphabets_lose_and_swap_letters_but_have_no_qwerty_neighbours():
    text = "превосходный фильм"
    assert misspell([text], "typo_neighbour", 5) == [text]
    assert sorted(misspell([text], "typo_swap", 5)[0]) == sorted(text)
    assert len(misspell([text], "typo_drop", 5)[0]) < len(text)


@pytest.mark.parametrize(
    ("kind", "severity", "message"),
    [("typo", 1, "typo_swap, typo_drop"), ("typo_drop", 0, "1 to 5"), ("typo_drop", 6, "not 6")],
)
def test_unknown_kinds_and_severities(kind, severity, message):
    with pytest.raises(ValueError, match=message):
        misspell([TEXT], kind, severity)


def test_the_examples_of_the_documentation():
    table = (Path(__file__).parents[2] / "docs/text.md").read_text(encoding="utf-8")
    for kind in KINDS:
        found = [
            misspell(["a charming and often affecting journey"], kind, severity)[0]
            for severity in (1, 3, 5)
        ]
        assert ", ".join(f"*{text}*" for text in found) in table
