"""The version of this package: that of the Ringfence it was released with."""

VERSION = "0.1.0"
