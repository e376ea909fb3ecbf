"""A program: create a kafka-python producer that is refused, and log what it logs, until it is ended.

Reads one JSON object from stdin: the options of the producer, and its token for OAUTHBEARER, or none."""

import json
import logging
import sys

from tests.clients.adapters.kafka_python import FixedToken, kafka

GIVE_UP_MS = 60_000


def main() -> None:
    logging.basicConfig(stream=sys.stdout)
    order = json.load(sys.stdin)
    provider = {"sasl_oauth_token_provider": FixedToken(order["token"])} if order["token"] else {}
    kafka.KafkaProducer(**order["config"], **provider, bootstrap_timeout_ms=GIVE_UP_MS)


if __name__ == "__main__":
    main()
