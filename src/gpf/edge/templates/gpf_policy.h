/* A navigator that gpf exported: sensor readings in, action out.

   Call gpf_reset() at the start of an episode, then gpf_greedy() or gpf_sampled() once in every control period.
   Nothing is allocated. The functions share static work space: call them from one thread. */
#ifndef GPF_POLICY_H
#define GPF_POLICY_H

#include <stddef.h>
#include <stdint.h>

$settings

#define GPF_SENSORS 5       /* left and right reading; wind speed, m/s; where the wind blows to, rad; heading, rad */
#define GPF_BAD_SENSORS (-1) /* for a sensor that is NaN or beyond +-1e6; nothing is remembered then */

typedef struct {
#if GPF_REMEMBERS
$memory
#endif
#if GPF_SAMPLES
    uint64_t stream[4]; /* of random numbers: xoshiro256++ */
#endif
    float outputs[GPF_ACTIONS]; /* of the network, for the last observation */
} gpf_state;

/* Begin an episode. The random stream goes on. */
void gpf_reset(gpf_state *state);

/* The action of greatest output, 0 to GPF_ACTIONS - 1, or GPF_BAD_SENSORS. */
int gpf_greedy(gpf_state *state, const float sensors[GPF_SENSORS]);

#if GPF_SAMPLES
/* Begin a random stream; the words must not all be 0. */
void gpf_seed(gpf_state *state, const uint64_t words[4]);

/* An action drawn from the softmax of the outputs, or GPF_BAD_SENSORS. */
int gpf_sampled(gpf_state *state, const float sensors[GPF_SENSORS]);
#endif

/* The name of an action. */
const char *gpf_action_name(int action);

/* Where this policy comes from, as JSON. */
const char *gpf_metadata(void);

/* The number of built-in observations for which the outputs or the action are wrong: 0. */
int gpf_self_test(void);

/* Bytes of static memory and one state. */
size_t gpf_ram(void);

/* Bytes of constants: weights, tables, self-test and metadata. Code comes on top. */
size_t gpf_flash(void);

#endif
