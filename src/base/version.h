/* SPDX-License-Identifier: Apache-2.0 */
/* The version of underspan. */
#ifndef UNDERSPAN_BASE_VERSION_H
#define UNDERSPAN_BASE_VERSION_H

/* a release has the version of its tag, from the build */
#ifndef UNDERSPAN_VERSION
#define UNDERSPAN_VERSION "0.1.0"
#endif

#endif
