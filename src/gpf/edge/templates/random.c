static uint64_t next_bits(uint64_t s[4])
{
    const uint64_t total = s[0] + s[3];
    const uint64_t result = ((total << 23) | (total >> 41)) + s[0];
    const uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return result;
}
