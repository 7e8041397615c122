/* SPDX-License-Identifier: Apache-2.0 */
/* The version of underspan. */
#ifndef UNDERSPAN_BASE_VERSION_H
#define UNDERSPAN_BASE_VERSION_H

#define UNDERSPAN_VERSION "0.1.0"

#endif
