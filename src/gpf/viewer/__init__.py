"""A local web page: the plume in motion, navigators that search in it, and networks as they grow."""
