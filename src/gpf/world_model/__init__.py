"""A world model of the plume: tokens in, tokens out; and a planner that imagines before it acts."""
