/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library is called and what its errors mean, from the lists in ringfold.h. */
#include "ringfold.h"

#define TEXT_OF(number)                   #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *rf_version(void)
{
	return VERSION_TEXT(RF_VERSION_MAJOR, RF_VERSION_MINOR, RF_VERSION_PATCH);
}

const char *rf_strerror(int error)
{
	switch (error) {
	case RF_OK:
		return "RF_OK: success";
#define X(name, value, text) \
	case RF_ERR_##name:  \
		return "RF_ERR_" #name ": " text;
		RF_ERROR_LIST(X)
#undef X
	}
	return error > 0 ? "not an error: a positive value" : "unknown error";
}
