"""A gpf navigator as a ROS 2 node."""
