"""The ament_python package `gpf_robot`; `colcon build` runs this."""

from setuptools import setup

setup(
    name="gpf_robot",
    version="0.1.0",
    packages=["gpf_robot"],
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/gpf_robot"]),
        ("share/gpf_robot", ["package.xml"]),
    ],
    install_requires=["setuptools", "gpf-networks"],
    description="A gpf navigator as a ROS 2 node: gas, wind and odometry in, velocity commands out.",
    license="MIT",
    entry_points={"console_scripts": ["navigator = gpf_robot.node:main"]},
)
