"""Reports on runs: statistics, tables, verdicts, figures and pages. Independent of tasks."""
