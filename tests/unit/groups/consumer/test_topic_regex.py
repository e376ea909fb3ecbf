import pytest
from tests.each import for_each

from millpond.groups.consumer import topic_regex
from millpond.groups.consumer.topic_regex import INSTRUCTIONS_MAX, LENGTH_MAX, TopicRegex
from millpond.model.errors import InvalidRegularExpression

NAMES = ("orders", "orders-eu", "ORDERS", "bills.v1", "bills_v1", "b", "2026", "__audit")


@for_each(
    "case",
    [
        # the whole name
        ("orders", {"orders"}),
        ("order", set()),
        ("rders", set()),
        ("orders|b", {"orders", "b"}),
        ("orders.*", {"orders", "orders-eu"}),
        ("^orders$", {"orders"}),
        (r"\Aorders\z", {"orders"}),
        ("", set()),
        # classes
        (r"bills.v\d", {"bills.v1", "bills_v1"}),
        (r"bills\.v[0-9]+", {"bills.v1"}),
        (r"\w+", {"orders", "ORDERS", "bills_v1", "b", "2026", "__audit"}),
        ("[[:digit:]]{4}", {"2026"}),
        (r"\pN+", {"2026"}),
        (r"\p{Lu}+", {"ORDERS"}),
        (r"\P{L}+", {"2026"}),
        (r"[^\p{Ll}]+", {"ORDERS", "2026"}),
        (r"\p{Greek}+", set()),
        (r"[b&&c]", {"b"}),
        (r"\x62", {"b"}),
        (r"\Qbills.v1\E", {"bills.v1"}),
        (r"orders\b.*", {"orders", "orders-eu"}),
        (r"\C", {"b"}),
        # groups and flags
        ("(?P<region>orders)", {"orders"}),
        ("(?<region>orders)", {"orders"}),
        ("(?:orders|bills)(-eu)?", {"orders", "orders-eu"}),
        ("(?i)orders", {"orders", "ORDERS"}),
        ("(?i:o)RDERS", {"ORDERS"}),
        ("(?i)ORDER\u017f", {"orders", "ORDERS"}),
        ("(?s).", {"b"}),
        ("(?m)^b$", {"b"}),
        ("(?U)o.+", {"orders", "orders-eu"}),
        # repetitions
        ("o.*?", {"orders", "orders-eu"}),
        ("b{1}", {"b"}),
        ("(o|r|d|e|s){6}", {"orders"}),
    ],
)
def test_expressions_are_re2s_and_match_the_whole_name(case):
    expression, expected = case
    assert TopicRegex(expression).matching(NAMES) == expected


@for_each(
    "case",
    [
        ("(", "missing ): ("),
        ("[a-", "missing ]: [a-"),
        ("*a", "no argument for repetition operator: *"),
        ("(?=a)b", "invalid perl operator: (?="),
        ("(?!a)b", "invalid perl operator: (?!"),
        ("(?<=a)b", "invalid perl operator: (?<="),
        ("(?<!a)b", "invalid perl operator: (?<!"),
        ("(?>a)", "invalid perl operator: (?>"),
        ("(?x) a", "invalid perl operator: (?x"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("(?P<n>a)(?P=n)", "invalid perl operator: (?P"),
        ("a++", "bad repetition operator: ++"),
        ("a**", "bad repetition operator: **"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("(a{1000}){2}", "invalid repetition size: {2}"),
        (r"a\Z", r"invalid escape sequence: \Z"),
        (r"\u0041", r"invalid escape sequence: \u"),
        (r"\p{IsAlphabetic}", r"invalid character class range: \p{IsAlphabetic}"),
        ("\\", "trailing \\"),
        ("\ud800", "it is not valid Unicode"),
    ],
)
def test_what_re2_does_not_support_is_refused_with_the_reason(case):
    expression, reason = case
    with pytest.raises(InvalidRegularExpression) as refused:
        TopicRegex(expression)
    assert refused.value.facts == {"regex": expression, "reason": reason}


def test_long_expressions_are_refused():
    assert TopicRegex("a" * LENGTH_MAX).matching(["a" * LENGTH_MAX]) == {"a" * LENGTH_MAX}
    with pytest.raises(
        InvalidRegularExpression, match="it has 4097 characters; at most 4096 are allowed"
    ) as refused:
        TopicRegex("a" * (LENGTH_MAX + 1))
    assert len(str(refused.value)) < LENGTH_MAX, "an expression is cut short in messages"


def test_complex_expressions_are_refused():
    """With about a nanosecond per instruction and character, these would take long for each name."""
    for expression in (r"\pL{5}", "(.?){900}"):
        with pytest.raises(
            InvalidRegularExpression, match=rf"too complex: \d+ of {INSTRUCTIONS_MAX} instructions"
        ):
            TopicRegex(expression)
    with pytest.raises(InvalidRegularExpression, match="pattern too large"):
        TopicRegex(r"\pL{1,500}")


def test_expressions_that_take_others_years_end():
    """Each of them takes a backtracking engine exponential time for this name."""
    for expression in ("(x+x+)+y", "(x|x)*y", "(.*)*(.*)*y", "(x?){30}x{30}y", "((x*)*)*y"):
        assert TopicRegex(expression).matching(["x" * 249]) == frozenset()


def test_names_that_need_the_slow_algorithm_match():
    """The automaton of these has more states than fit into the memory, so RE2 simulates it instead."""
    names = [f"{'ab' * place}x{'ba' * (100 - place)}" for place in range(100)]
    found = TopicRegex(r".*[ax].{100}[ab].*").matching(names)
    assert found == {name for name in names if any(each in "ax" for each in name[: len(name) - 101])}
    assert topic_regex.MEMORY_BYTES_MAX == 256 << 10
