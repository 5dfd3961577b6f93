/* A navigator that gpf exported as a table of actions: sensor readings in, action out. It remembers nothing. */
#ifndef GPF_TABLE_H
#define GPF_TABLE_H

#define GPF_ACTIONS $count
#define GPF_SENSORS 5       /* left and right reading; wind speed, m/s; where the wind blows to, rad; heading, rad */
#define GPF_BAD_SENSORS (-1) /* for a sensor that is NaN or beyond +-1e6 */

/* The action, 0 to GPF_ACTIONS - 1, or GPF_BAD_SENSORS. */
int gpf_table_action(const float sensors[GPF_SENSORS]);

/* The name of an action. */
const char *gpf_action_name(int action);

/* Where this policy comes from, as JSON. */
const char *gpf_metadata(void);

/* The number of built-in observations for which the action is wrong: 0. */
int gpf_self_test(void);

#endif
