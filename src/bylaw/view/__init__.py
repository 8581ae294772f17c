"""The presentation of results: numbers, sentences, charts, HTML and cards."""
