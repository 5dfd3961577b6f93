"""Where a robot is while it smells its way: a filter that fuses an IMU, a wind vane and contacts with the plume."""

from gpf.navigation.odometry.imu import GRADES, Imu
from gpf.navigation.odometry.model import Aids, Grade, Model
from gpf.navigation.odometry.policy import Estimating, Odometry, with_odometry
from gpf.navigation.odometry.robot import OdometryFilter

__all__ = ["GRADES", "Aids", "Estimating", "Grade", "Imu", "Model", "Odometry", "OdometryFilter", "with_odometry"]
