"""Which client a node plays: its partition-id, which the host's owner sets with --node-config."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from flwr.app import ConfigRecord, RecordDict, UserConfigValue

from ...errors import EngineError

KEY = "adaquantfl"
HOW = "Start it with --node-config 'partition-id=I num-partitions=N'."


def write_identity(node_config: Mapping[str, UserConfigValue]) -> RecordDict:
    """What a node says of itself."""
    return RecordDict(
        {
            KEY: ConfigRecord(
                {
                    "client": str(node_config.get("partition-id", "")),
                    "clients": str(node_config.get("num-partitions", "")),
                    "version": version("adaquantfl"),
                }
            )
        }
    )


def read_identity(content: RecordDict, clients: int) -> int:
    """The client's number. EngineError with the reason where the node cannot take part in a run of so many clients."""
    record = content.config_records.get(KEY) or ConfigRecord()
    client, partitions = str(record.get("client", "")), str(record.get("clients", ""))
    theirs, ours = str(record.get("version", "")), version("adaquantfl")
    if theirs != ours:
        raise EngineError(f"It runs adaquantfl {theirs or 'of no known version'}, the server {ours}. Install the same.")
    if not client.isdecimal():
        raise EngineError(f"It has no partition-id. {HOW}")
    if partitions not in ("", str(clients)):
        raise EngineError(f"It was started with num-partitions={partitions}, but the run has clients = {clients}.")
    if int(client) >= clients:
        raise EngineError(f"Its partition-id is {client}, but clients are numbered from 0 to {clients - 1}.")
    return int(client)
