"""From a run folder onto a robot: exported policies, and the messages between a navigator and a robot."""
