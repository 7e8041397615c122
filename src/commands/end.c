// SPDX-License-Identifier: Apache-2.0
/* End of a command. See commands.h. */
#include "commands/commands.h"
#include "base/log.h"

int command_end(int err, const struct why *why)
{
	if (!err)
		return EXIT_DONE;
	log_error("%s", why->text);
	return err == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
}
