"""Tables, pages and figures: functions of results, which they only show."""
