"""New training projects: templates, and what makes a project of them."""
