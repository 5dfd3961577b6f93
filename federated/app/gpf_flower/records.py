"""What Flower carries: one record with the bytes of a gpf message. Flower reads none of it."""

from flwr.app import ConfigRecord, Message, RecordDict

RECORD, KEY = "gpf", "message"


def content(data: bytes) -> RecordDict:
    """Bytes as the content of a Flower message."""
    return RecordDict({RECORD: ConfigRecord({KEY: data})})


def read(message: Message) -> bytes | str:
    """The bytes of a Flower message; or, in words, why there are none."""
    if message.has_error():
        return f"no answer ({message.error.reason or f'Flower error {message.error.code}'})"
    data = message.content.config_records.get(RECORD, {}).get(KEY)
    if not isinstance(data, bytes):
        return f"the answer must hold bytes as {RECORD}.{KEY}, got {type(data).__name__}"
    return data
