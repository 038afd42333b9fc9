//! Servers that hang, break off, lie and send too much.
