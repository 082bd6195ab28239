package org.apache.spark.kafka010;

/** A cluster that tokens are for; there is none. */
public class KafkaTokenClusterConf {}
