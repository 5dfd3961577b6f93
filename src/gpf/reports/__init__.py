"""What runs amount to: statistics, tables, verdicts, figures, pages, and a run's report. Knows no task."""
