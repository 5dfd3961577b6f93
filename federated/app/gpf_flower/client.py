"""The ClientApp: a navigator in its own world. Flower starts a process for each message; a folder keeps the state."""

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from gpf.federated.clients import Client
from gpf_flower.plan import read_plan
from gpf_flower.records import content, read

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Learn for a round, save everything that the next one needs, and answer."""
    index = int(context.node_config["partition-id"])
    folder = Path(str(context.node_config.get("folder", f"{context.run_config['folder']}/client-{index}")))
    client = Client(read_plan(context.run_config), index)
    if folder.exists():
        client.restore(folder)
    request = read(message)
    if isinstance(request, str):
        raise ValueError(request)
    answer = client.answer(request)
    client.save(folder)
    return Message(content(answer), reply_to=message)
