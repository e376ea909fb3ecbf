"""Who serves what: membership of brokers and ownership of partitions."""
