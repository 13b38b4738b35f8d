"""What only our own evidence needs: the paper's panels and claims, rivals, sensitivity. Not part of the package."""
