"""What only our own evidence needs: studies, the pages made of their records, and the records. Not in the wheel."""
