"""A name that transformers imports."""

pil_to_tensor = None
