"""The kit of pages: template, policy, style, and the scripts that all pages share."""
