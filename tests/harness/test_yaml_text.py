import pytest

from bench.yaml_text import read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\nb: [x, 2.5, null]", {"a": 1, "b": ["x", 2.5, None]}),
        ("x: {a: 1}\ny: {a: 2}", {"x": {"a": 1}, "y": {"a": 2}}),
        ("base: &b {a: 1}\nown: {<<: *b, a: 2}", {"base": {"a": 1}, "own": {"a": 2}}),
        ("\ufeffname: é😀\r\n", {"name": "é😀"}),
        ("", None),
    ],
)
def test_values(text, value):
    assert read_yaml(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("seeds: [0]\nname: x\nseeds: [1, 2]", "'seeds' stands twice.*line 3"),
        ("{a: {b: 1, b: 1}}", "'b' stands twice"),
        ('label: "\\ud800"', "no character.*line 1"),
        ("[" * 5000, "nested too deep"),
        ("[" * 5000 + "]" * 5000, "nested too deep"),
        ("a: [1", "expected"),
        ("a: !!python/name:os.system", "could not determine a constructor"),
        ("2001-99-99", "month"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_refused_takes_one_line(text, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        read_yaml(text)
    assert "\n" not in str(caught.value)
