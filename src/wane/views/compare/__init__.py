"""What a comparison of two files of predictions looks like: tables, sentences and a page."""
