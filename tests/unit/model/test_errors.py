"""What an error says: its docstring, with facts; and no more of a text from outside than fits."""

from millpond.model.errors import FACT_CHARS_MAX, InvalidTopicName, UnknownTopic


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
