"""The report: one page that stands alone."""
