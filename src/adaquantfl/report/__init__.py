"""Tables, figures, the page and the trackers: what people look at, made from records."""
