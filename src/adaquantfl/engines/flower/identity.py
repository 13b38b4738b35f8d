"""Which client a node plays: its partition-id, which the host's owner sets with --node-config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version

from flwr.app import ConfigRecord, RecordDict, UserConfigValue

from ...errors import EngineError

KEY = "adaquantfl"
HOW = "Start it with --node-config 'partition-id=I num-partitions=N'."


@dataclass(frozen=True)
class Identity:
    """The client's number, and whether its process keeps the models that it is sent."""

    client: int
    keeps: bool


def write_identity(node_config: Mapping[str, UserConfigValue], keeps: bool) -> RecordDict:
    """What a node says of itself."""
    return RecordDict(
        {
            KEY: ConfigRecord(
                {
                    "client": str(node_config.get("partition-id", "")),
                    "clients": str(node_config.get("num-partitions", "")),
                    "keeps": keeps,
                    "version": version("adaquantfl"),
                }
            )
        }
    )


def read_identity(content: RecordDict, clients: int) -> Identity:
    """What a node says of itself. EngineError with the reason where it cannot take part in the run."""
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
    return Identity(int(client), record.get("keeps") is True)
