"""What an error says: its docstring, with facts; and no more of a text from outside than fits."""

from millpond.model.errors import (
    FACT_CHARS_MAX,
    InvalidSettings,
    InvalidTopicName,
    UnknownTopic,
    without_double_periods,
)


def test_facts_fill_the_message_and_stay_available():
    error = UnknownTopic(topic="orders")
    assert "'orders'" in str(error)
    assert error.facts == {"topic": "orders"}


def test_a_long_text_is_cut_in_the_message_and_not_in_the_facts():
    name = "\U000e0001" * 100_000
    error = InvalidTopicName(name=name)
    assert len(str(error)) < 11 * FACT_CHARS_MAX
    assert "…" in str(error)
    assert error.facts["name"] == name
    assert str(error.copy()) == str(error)


def test_a_reason_that_ends_its_sentence_gets_no_second_full_stop():
    error = InvalidSettings(
        name="path", value="x", reason="there is no catalog in it: has a broker run there?"
    )
    assert str(error).endswith("has a broker run there?")
    assert str(InvalidSettings(name="a", value="b", reason="It is wrong.")).endswith("'b': It is wrong.")
    assert without_double_periods("Once.. Twice!. Thrice?.") == "Once. Twice! Thrice?"


def test_an_ellipsis_and_a_name_of_dots_stay_as_they_are():
    assert without_double_periods("and so on... 1..2 '..' is '.'.") == "and so on... 1..2 '..' is '.'."
    assert "'..' is not valid" in str(InvalidTopicName(name=".."))
