"""The coordinator shards of a broker, as tests look at them and take them away."""

from millpond.catalog.schema import COORDINATOR_SHARDS


def owned_shards(broker):
    """Each shard that the broker owns, with its epoch."""
    epochs = {shard: broker.owned_shards.epoch_of(shard) for shard in range(COORDINATOR_SHARDS)}
    return {shard: epoch for shard, epoch in epochs.items() if epoch is not None}


def take_all_shards(broker):
    """As if another broker had adopted them; returns what it owned."""
    owned = owned_shards(broker)
    broker.owned_shards._epochs.clear()
    return owned
