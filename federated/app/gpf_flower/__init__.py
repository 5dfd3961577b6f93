"""gpf.federated as a Flower app: networks of different structure learn in many places and are merged in one."""
