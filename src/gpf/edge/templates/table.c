/* The action for each of the $states observations that the tokenizer tells apart. */
static const uint8_t actions[$states] = {
$actions
};
