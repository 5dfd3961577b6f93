"""A navigator on a robot: messages of gas, wind and odometry in, velocity commands out."""

from gpf.edge.robot.conversion import from_adc, from_ppm
from gpf.edge.robot.driver import Robot
from gpf.edge.robot.limits import Limits
from gpf.edge.robot.messages import Command, Gas, Odometry, Status, Wind

__all__ = ["Command", "Gas", "Limits", "Odometry", "Robot", "Status", "Wind", "from_adc", "from_ppm"]
